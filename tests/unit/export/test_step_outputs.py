from functools import cache

import numpy as np
import onnxruntime as ort
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnxscript import ir

from seqserve_export.graphs.step_outputs import OUTPUTS, ScoredOutputs, block_size
from seqserve_export.program import Input, Program
from seqserve_export.tracing import trace
from seqserve_server.contract.limits import MAX_TOP_K

# Too small for blocks, a prime number of blocks of one, and blocks of seven.
VOCABULARIES = (50, 101, 448)


@pytest.mark.parametrize("tokens", [1, 7, 24, 128, 384, 509, 1021, 6144, 32_000])
def test_a_block_divides_the_vocabulary_and_any_list_has_blocks_enough(tokens: int) -> None:
    size = block_size(tokens)
    assert tokens % size == 0
    assert 1 <= size <= 512
    assert tokens // size >= min(MAX_TOP_K, tokens)


@cache
def scored(vocabulary: int) -> ort.InferenceSession:
    inputs = [
        Input("biased_logits", torch.zeros(2, vocabulary), (0,)),
        Input("top_k", torch.zeros(4, dtype=torch.int64), (0,)),
    ]
    model = trace(Program(module=ScoredOutputs(), inputs=inputs, outputs=OUTPUTS))
    return ort.InferenceSession(ir.serde.serialize_model(model).SerializeToString())


@given(data=st.data(), vocabulary=st.sampled_from(VOCABULARIES))
def test_top_tokens_are_those_of_a_stable_sort(data: st.DataObject, vocabulary: int) -> None:
    """Whatever the ties: few values make many, and a mask makes most of a row equal."""
    rows = data.draw(st.integers(1, 3))
    top_k = data.draw(st.integers(0, min(MAX_TOP_K, vocabulary)))
    values = data.draw(st.integers(1, 1000))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    logits = random.integers(0, values, (rows, vocabulary)).astype(np.float32) / 8
    logits[random.random(logits.shape) < data.draw(st.sampled_from([0.0, 0.99]))] = -1e30
    outputs = run(scored(vocabulary), logits, top_k)
    order = np.argsort(-logits, axis=1, kind="stable")
    np.testing.assert_array_equal(outputs["next_tokens"], order[:, :1])
    np.testing.assert_array_equal(outputs["top_tokens"], order[:, :top_k])
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    expected = np.take_along_axis(log_probabilities, order[:, : max(top_k, 1)], axis=1)
    np.testing.assert_allclose(outputs["log_probabilities"], expected[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        outputs["top_log_probabilities"], expected[:, :top_k], rtol=1e-5, atol=1e-5
    )


def test_no_logits_are_returned() -> None:
    outputs = run(scored(448), np.zeros((2, 448), np.float32), 3)
    assert outputs["logits"].size == outputs["allowed_logits"].size == 0


def run(
    session: ort.InferenceSession, logits: NDArray[np.float32], top_k: int
) -> dict[str, NDArray[np.float32]]:
    inputs = {"biased_logits": logits, "top_k": np.zeros(top_k, np.int64)}
    return dict(zip(OUTPUTS, session.run(OUTPUTS, inputs), strict=True))
