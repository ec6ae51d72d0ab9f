from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference import Reference
from tests.reference_log_probs import ReferenceLogProbs
from tests.unit.export.conftest import opened
from tests.unit.export.test_graphs import (
    OPTIONS,
    QUICK,
    SHAPES,
    Exported,
    answers_of,
    make_model,
    make_sources,
)

from seqserve.errors import OptionError
from seqserve_export.fp16_conversion import dtype_of, halve
from seqserve_export.quantization import precision_of
from seqserve_export.tolerance import TOLERANCES
from seqserve_model.config import DecoderCell, PositionScheme
from seqserve_model.transformer import Transformer
from seqserve_server.engine.cache import SlotCache

SOURCE, LENGTHS = torch.tensor([[5, 6, 7, 2]]), torch.tensor([4])
TARGET = torch.tensor([[1, 8, 9]])

# Each choice at least once, but for sinusoidal positions, which the tiny artifact has.
HALVED = (
    "learned-rms-gelu-apart",
    "rotary-swish",
    "alibi-swiglu",
    "t5-wide-heads-no-biases-geglu",
    "learned-embedding-norm-logits-bias",
    "ssru-marian-post-norm",
)


def test_weights_are_halves_and_logits_are_not(tiny_model: Transformer) -> None:
    halved = halve(tiny_model)
    assert (precision_of(tiny_model), precision_of(halved)) == ("fp32", "fp16")
    assert (dtype_of(tiny_model), dtype_of(halved)) == (torch.float32, torch.float16)
    assert {weight.dtype for weight in halved.parameters()} == {torch.float16}
    assert halved.output_projection.weight is halved.target_embedding.weight
    assert {weight.dtype for weight in tiny_model.parameters()} == {torch.float32}
    memory = halved.encode(SOURCE, LENGTHS)
    logits = halved(SOURCE, LENGTHS, TARGET)
    assert (memory.dtype, logits.dtype) == (torch.float16, torch.float32)
    whole = tiny_model(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(logits, whole, atol=0.05, rtol=0)


def test_tokens_stay_suppressed_by_numbers_that_halves_lack() -> None:
    model = make_model(logits_bias=True)
    with torch.no_grad():
        model.logits_bias[7] = -1e30  # type: ignore[index]
    halved = halve(model)
    logits = halved(SOURCE, LENGTHS, TARGET)
    assert logits.isfinite().all()
    assert (logits[..., 7] == -1e30).all()


@pytest.mark.parametrize(
    "shape",
    [
        {"positions": PositionScheme.RELATIVE},
        {"positions": PositionScheme.RELATIVE, "decoder_cell": DecoderCell.SSRU},
    ],
)
def test_positions_without_a_kernel_are_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"fp16: .* for \w+ positions; take fp32 or int8"):
        halve(make_model(**shape))


def test_candidates_have_the_logits_of_the_whole_vocabulary_but_for_rounding(
    tiny_fp16_artifact: Path,
) -> None:
    """The CPU multiplies them by another kernel, of fp32, and rounds the result."""
    runtime = opened(tiny_fp16_artifact)
    cache, tokens = SlotCache(runtime, 2), np.arange(4, 100)
    for row in range(2):
        cache.join(row, runtime.encode([[5, 6, 7, 2]]), 0)
    cache.limit(1, tokens)
    cache.set_outputs(top_k=0, logits=True)
    cache.advance(2)
    _, candidates = cache.candidates(1) or (tokens, cache.logits(1))
    np.testing.assert_allclose(candidates, cache.logits(0)[tokens], rtol=2**-10, atol=2**-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.parity) for name in HALVED],
)
def test_exported_halves_equal_torch(name: str, exported: Exported) -> None:
    model = halve(make_model(**SHAPES[name]))
    same = 0
    for source, answer in zip(make_sources(), answers_of(exported(model)), strict=True):
        ought = Reference(ReferenceLogProbs(model, source, OPTIONS))
        if answer.best.token_ids == ought.answer.best.token_ids:
            same += 1
            # Of a dozen tokens.
            bound = TOLERANCES["fp16"].logprob_difference
            assert answer.best.score == pytest.approx(ought.answer.best.score, abs=2 * bound)
        else:
            assert ought.margin < TOLERANCES["fp16"].logprob_difference
    assert same >= 24
