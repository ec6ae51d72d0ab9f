from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from tests.device_requests import WAYS, decode
from tests.unit.server.engine.gpu.halved_artifact import halved_artifact
from tests.unit.server.engine.gpu.host_device import on_device, on_host

from seqserve_server.engine.gpu.graphs import fuse_norms
from seqserve_server.engine.graph_messages import MODEL


def fused(data: bytes) -> bytes:
    model = MODEL.FromString(data)
    fuse_norms(model.graph)
    return bytes(model.SerializeToString())


def kinds(data: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(data).graph.node]


@pytest.mark.parametrize("artifact", ["tiny_artifact", "tiny_fp16_artifact"])
def test_no_norm_of_an_artifact_follows_a_sum(
    request: pytest.FixtureRequest, artifact: str
) -> None:
    folder: Path = request.getfixturevalue(artifact)
    before = (folder / "decoder.onnx").read_bytes()
    after = fused(before)
    joined = kinds(after).count("SkipLayerNormalization")
    assert joined == kinds(before).count("LayerNormalization") > 0
    assert kinds(before).count("Add") - kinds(after).count("Add") == joined
    assert "LayerNormalization" not in kinds(after)


def test_a_sum_that_others_read_too_is_computed_once_and_keeps_its_value() -> None:
    """As in a pre-norm layer, where it is what the next sublayer's result is added to."""
    value = helper.make_tensor_value_info
    size = [2, 8]
    nodes = [
        helper.make_node("Identity", ["a"], ["x"]),
        helper.make_node("Identity", ["b"], ["y"]),
        helper.make_node("Add", ["x", "y"], ["sum"]),
        helper.make_node("Neg", ["sum"], ["negative"]),
        helper.make_node("LayerNormalization", ["sum", "weight", "bias"], ["norm"], epsilon=0.5),
    ]
    weights = [
        helper.make_tensor("weight", TensorProto.FLOAT, [8], [1.5] * 8),
        helper.make_tensor("bias", TensorProto.FLOAT, [8], [0.25] * 8),
    ]
    inputs = [value(name, TensorProto.FLOAT, size) for name in ("a", "b")]
    outputs = [value(name, TensorProto.FLOAT, size) for name in ("norm", "negative")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    before = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    after = fused(before)
    assert kinds(after) == ["Identity", "Identity", "SkipLayerNormalization", "Neg"]
    draw = np.random.default_rng(1)
    feeds = {name: draw.standard_normal(size).astype(np.float32) for name in ("a", "b")}
    providers = ["CPUExecutionProvider"]
    wanted, given = (
        ort.InferenceSession(data, providers=providers).run(None, feeds) for data in (before, after)
    )
    for mine, theirs in zip(given, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.slow
def test_an_rms_norm_becomes_one_node_that_computes_the_same(tmp_path: Path) -> None:
    folder = halved_artifact("t5-wide-heads-no-biases-geglu", tmp_path)
    before = (folder / "decoder.onnx").read_bytes()
    norms = kinds(before).count("ReduceMean")
    after = kinds(fused(before))
    assert norms == after.count("SimplifiedLayerNormalization") == 7
    assert not {"Pow", "ReduceMean", "Sqrt", "Reciprocal"}.intersection(after)
    requests = [([5, 6, 7, 2], WAYS["greedy"]), ([9, 2], WAYS["beam"]), ([8, 2], WAYS["prefix"])]
    answers = [
        decode(runtime, folder, requests, 6) for runtime in (on_device(folder)[0], on_host(folder))
    ]
    for mine, theirs in zip(*answers, strict=True):
        assert mine.best.token_ids == theirs.best.token_ids
        assert mine.best.score == pytest.approx(theirs.best.score, abs=0.01)
