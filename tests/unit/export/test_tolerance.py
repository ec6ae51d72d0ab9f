import dataclasses

import numpy as np
import pytest
import torch
from tests.tiny import SENTENCES

from seqserve_export.options import Caches, Scales
from seqserve_export.quantization import Calibration, quantize
from seqserve_export.tolerance import ParityError, check_tolerance, mean_difference, sensitivity
from seqserve_model.decoding import TargetScores, score_targets
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.records import Verification
from seqserve_server.text.tokenizer import Tokenizer


@pytest.fixture
def verification() -> Verification:
    """Of an artifact without fault."""
    return Verification(
        data="sentences.tsv",
        sentences=45,
        sentences_equal=45,
        top1_agreement=1.0,
        tokens=400,
        max_logprob_difference=1e-5,
        mean_logprob_difference=1e-6,
        bleu_torch=30.0,
        bleu_artifact=30.0,
        chrf_torch=50.0,
        chrf_artifact=50.0,
        bleu_signature="",
        chrf_signature="",
        torch="",
        onnxruntime="",
    )


COSTS = {
    "max_logprob_difference": 0.8,
    "bleu_torch": 30.0,
    "bleu_artifact": 29.85,
    "top1_agreement": 0.975,
}


@pytest.mark.parametrize(
    ("precision", "change"),
    [
        ("fp32", {}),
        ("fp16", {}),
        ("int8", {}),
        ("fp32", {"bleu_torch": 29.0, "bleu_artifact": 29.9}),
        ("int8", COSTS),
    ],
)
def test_faithful_artifact_is_accepted(
    verification: Verification, precision: str, change: dict[str, float]
) -> None:
    check_tolerance(dataclasses.replace(verification, **change), precision)


@pytest.mark.parametrize(
    ("precision", "change", "message"),
    [
        ("fp32", {"max_logprob_difference": 2e-3}, r"max log-.* is 0\.002, at most 0\.001"),
        ("fp32", {"max_logprob_difference": float("nan")}, "max log-.* difference is nan"),
        ("fp32", {"mean_logprob_difference": 2e-4}, r"mean log-.* is 0\.0002, at most 0\.0001"),
        ("fp32", {"bleu_torch": 30.0, "bleu_artifact": 29.9}, r"BLEU lost is 0\.1, at most 0\.05"),
        ("fp32", {"sentences_equal": 44}, r"equal sentences is 0\.977778, at least 0\.998"),
        ("fp32", {"top1_agreement": 0.99}, r"agreement is 0\.99, at least 0\.999 .* for fp32"),
        ("fp32", {"top1_agreement": float("nan")}, "top-1 agreement is nan"),
        ("int8", {"max_logprob_difference": 1.2}, r"max log-.* difference is 1\.2, at most 1"),
        ("int8", {"bleu_torch": 30.0, "bleu_artifact": 29.7}, r"BLEU lost is 0\.3, at most 0\.2"),
        ("int8", {"sentences_equal": 40}, r"equal sentences is 0\.888889, at least 0\.9"),
        ("int8", {"top1_agreement": 0.96}, r"agreement is 0\.96, at least 0\.97 .* for int8"),
    ],
)
def test_judge_refuses_with_both_numbers(
    verification: Verification, precision: str, change: dict[str, float], message: str
) -> None:
    with pytest.raises(ParityError, match=message):
        check_tolerance(dataclasses.replace(verification, **change), precision)


def test_sensitive_model_may_differ_by_a_multiple_of_what_last_bits_do(
    verification: Verification,
) -> None:
    differing = dataclasses.replace(verification, mean_logprob_difference=5e-3, tokens=10_000)
    check_tolerance(dataclasses.replace(differing, logprob_sensitivity=2e-3), "int8")
    for moved in (None, 1e-3):
        with pytest.raises(ParityError, match=r"mean log-probability difference is 0\.005"):
            check_tolerance(dataclasses.replace(differing, logprob_sensitivity=moved), "int8")


def test_of_few_tokens_one_value_may_decide(verification: Verification) -> None:
    differing = dataclasses.replace(verification, mean_logprob_difference=5e-3)
    check_tolerance(dataclasses.replace(differing, tokens=200), "int8")
    with pytest.raises(ParityError, match=r"0\.005, at most 0\.0035 is allowed"):
        check_tolerance(dataclasses.replace(differing, tokens=400), "int8")
    with pytest.raises(ParityError, match="mean"):
        check_tolerance(dataclasses.replace(differing, tokens=200), "fp32")


SOURCES = [[5, 6, 7, 8, 2], [9, 10, 2], [11, 5, 12, 2]]
TARGETS = [[6, 7, 2], [8, 2], [9, 10, 11, 2]]


def measured(model: Transformer) -> float:
    return sensitivity(model, SOURCES, TARGETS, score_targets(model, SOURCES, TARGETS))


def test_whole_model_moves_by_little(tiny_model: Transformer) -> None:
    assert 0 < measured(tiny_model) < 1e-5


def test_rounding_amplifies(
    tiny_model: Transformer, tiny_calibration: Calibration, tiny_tokenizer: Tokenizer
) -> None:
    """Few values fall to the next step, but that one is wide."""
    rounded = quantize(tiny_model, tiny_calibration, Scales.STATIC, Caches.INT8)
    sources = [tiny_tokenizer.encode(sentence) for sentence in SENTENCES[:45]]
    moved = [
        sensitivity(model, sources, sources, score_targets(model, sources, sources))
        for model in (tiny_model, rounded)
    ]
    assert moved[1] > 2 * moved[0] > 0


def test_model_is_as_before_and_the_measure_repeats(tiny_model: Transformer) -> None:
    before = score_targets(tiny_model, SOURCES, TARGETS)
    assert measured(tiny_model) == measured(tiny_model)
    after = score_targets(tiny_model, SOURCES, TARGETS)
    for first, second in zip(before, after, strict=True):
        np.testing.assert_array_equal(first.log_probabilities, second.log_probabilities)


@pytest.mark.parametrize("name", ["source_embedding", "target_embedding"])
def test_each_embedding_counts(tiny_model: Transformer, name: str) -> None:
    config = dataclasses.replace(tiny_model.config, shared_embeddings=False, tied_output=False)
    torch.manual_seed(1)
    model = Transformer(config).eval()
    with torch.no_grad():
        getattr(model, name).weight.zero_()
    assert measured(model) > 0, "only the embedding that is zero was changed"


def test_mean_is_over_tokens_not_sentences() -> None:
    scores = [TargetScores(np.zeros(tokens), np.zeros(0), np.zeros(0)) for tokens in (3, 1)]
    assert mean_difference([np.ones(3), np.full(1, -5.0)], scores) == 2.0
