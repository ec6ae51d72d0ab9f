import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from tests.unit.server.engine.gpu.halved_artifact import halved_encoder

from seqserve_server.engine.gpu.encoder import pack_attention, packed_inputs
from seqserve_server.engine.graph_messages import MODEL
from seqserve_server.engine.packing import pack

SOURCES = [[5, 6, 7, 8, 9, 2], [4, 2], [9, 8, 7, 2], [2]]


class PackedMultiHeadAttention(OpRun):
    """The operator, as ONNX Runtime's docs/ContribOperators.md has it."""

    op_domain = "com.microsoft"

    def _run(self, *inputs: Any, num_heads: int) -> tuple[NDArray[Any]]:
        query, key, value, _, offsets, starts, *bias = inputs
        # All places of the padded batch come once, those of tokens first.
        assert sorted(offsets.ravel()) == list(range(offsets.size))
        longest = offsets.shape[1]
        found = np.empty_like(query)
        for row, (begin, end) in enumerate(itertools.pairwise(starts)):
            places = offsets.ravel()[begin:end]
            assert list(places) == [row * longest + index for index in range(end - begin)]
            q, k, v = (part[begin:end].reshape(end - begin, num_heads, -1).transpose(1, 0, 2)
                       for part in (query, key, value))  # fmt: skip
            logits = (q.astype(np.float32) @ k.transpose(0, 2, 1)) / np.sqrt(q.shape[-1])
            if bias:
                logits += bias[0][0, :, : end - begin, : end - begin]
            weights = np.exp(logits - logits.max(-1, keepdims=True))
            heads = (weights / weights.sum(-1, keepdims=True)) @ v
            found[begin:end] = heads.transpose(1, 0, 2).reshape(end - begin, -1)
        return (found,)


PACKED = ["sinusoidal-post-norm", "t5-wide-heads-no-biases-geglu"]


@pytest.fixture(scope="module", params=PACKED)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return halved_encoder(request.param, tmp_path_factory.mktemp("packed"))


@pytest.mark.slow
def test_packed_sources_are_encoded_as_padded_ones(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(folder, place)
    model = MODEL.FromString((folder / "encoder.onnx").read_bytes())
    pack_attention(model.graph)
    (place / "packed.onnx").write_bytes(model.SerializeToString())
    packed = onnx.load(str(place / "packed.onnx"))
    kinds = {node.op_type for node in packed.graph.node}
    assert "PackedMultiHeadAttention" in kinds
    assert not {"MultiHeadAttention", "Reshape"} & kinds
    names = {value.name for value in packed.graph.input}
    assert "unpad_index" not in names
    before = ort.InferenceSession(folder / "encoder.onnx", providers=["CPUExecutionProvider"])
    wanted = before.run(None, pack(SOURCES))
    after = ReferenceEvaluator(packed, new_ops=[PackedMultiHeadAttention])
    given = after.run(None, packed_inputs(SOURCES, names))
    for mine, theirs in zip(given, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=0.02)


@pytest.mark.slow
def test_an_encoder_that_needs_the_padded_batch_keeps_it(tmp_path: Path) -> None:
    folder = halved_encoder("rotary-swish", tmp_path)
    message = MODEL.FromString((folder / "encoder.onnx").read_bytes())
    before = message.SerializeToString()
    pack_attention(message.graph)
    assert message.SerializeToString() == before
    names = {value.name for value in message.graph.inputs}
    inputs = packed_inputs(SOURCES, names)
    assert inputs.keys() == names
    # Biases of kernels on a GPU come in rows of multiples of eight.
    assert inputs["pad_index"].shape == (4, 8)
