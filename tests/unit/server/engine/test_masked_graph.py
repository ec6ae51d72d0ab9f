"""Graphs of earlier releases, whose masks are moved in front of the branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from tests.graph_nodes import nodes_of

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.masked_graph import masked_graph
from seqserve_server.engine.session import open_session
from seqserve_server.engine.step import MASKED_LOGIT

EARLIER = Path("models/en-de/2")
ROWS, LENGTH, SOURCE_LENGTH, TOP_K = 3, 2, 5, 6


def opened(graph: bytes | None) -> ort.InferenceSession:
    manifest = Manifest.load(EARLIER)
    return open_session(
        EARLIER, "decoder.onnx", manifest, Provider.CPU, 1, packs=False, graph=graph
    )


def inputs_of(session: ort.InferenceSession, masked: list[int], *, has_logits: bool) -> Any:
    random = np.random.default_rng(5)
    sizes = {"top_k": TOP_K, "num_logits": 20 * has_logits, "allowed_tokens": 0}
    found: dict[str, Any] = {
        "tokens": np.array([[7], [8], [9]]),
        "lengths": np.full(ROWS, LENGTH, np.int32),
        "max_length": np.array([LENGTH + 1], np.int32),
        "source_last_index": np.full(ROWS, SOURCE_LENGTH - 1, np.int32),
        "max_source_length": np.array([SOURCE_LENGTH], np.int32),
        "has_options": np.array(True),
        "only_scores": np.array(not has_logits),
        "return_logprobs": np.array(True),
        "bias_tokens": np.tile(np.array(masked, np.int64), (ROWS, 1)),
        "bias_values": np.full((ROWS, len(masked)), MASKED_LOGIT),
        "projected_rows": np.arange(ROWS),
    }
    for entry in session.get_inputs():
        if entry.name in sizes:
            found[entry.name] = np.zeros((sizes[entry.name], *entry.shape[1:]), np.int64)
        elif entry.name not in found:
            shape = [size if isinstance(size, int) else 8 for size in entry.shape[1:]]
            found[entry.name] = random.normal(size=(ROWS, *shape)).astype(np.float32)
    return found


def run(session: ort.InferenceSession, inputs: Any) -> dict[str, Any]:
    names = ["next_tokens", "log_probabilities", "top_tokens", "top_log_probabilities", "logits"]
    return dict(zip(names, session.run(names, inputs), strict=True))


def test_masks_hold_in_every_branch_to_the_bit() -> None:
    earlier, moved = opened(None), opened(masked_graph(EARLIER / "decoder.onnx"))
    free = run(earlier, inputs_of(earlier, [], has_logits=False))
    best = np.unique(free["top_tokens"][:, :2]).tolist()
    expected = run(earlier, inputs_of(earlier, best, has_logits=True))
    assert not np.isin(expected["top_tokens"], best).any()
    for has_logits in (True, False):
        found = run(moved, inputs_of(moved, best, has_logits=has_logits))
        for name in expected.keys() - ({"logits"} if not has_logits else set()):
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    unmasked = run(moved, inputs_of(moved, [], has_logits=False))
    for name, array in free.items():
        np.testing.assert_array_equal(unmasked[name], array, err_msg=name)


def test_only_the_mask_has_another_place() -> None:
    before = onnx.load(str(EARLIER / "decoder.onnx"), load_external_data=False).graph
    changed = masked_graph(EARLIER / "decoder.onnx")
    assert changed is not None
    after = onnx.load_from_string(changed).graph
    assert [node.op_type for node in after.node[-2:]] == ["ScatterElements", "If"]
    kinds = [sorted(node.op_type for node in nodes_of(graph)) for graph in (before, after)]
    assert kinds[0] == kinds[1]


def test_others_stay_as_they_are(tiny_artifact: Path) -> None:
    assert masked_graph(tiny_artifact / "decoder.onnx") is None


@pytest.mark.parametrize("version", [1, 2])
def test_shipped_graphs_are_of_an_earlier_release(version: int) -> None:
    assert masked_graph(EARLIER.with_name(str(version)) / "decoder.onnx") is not None
