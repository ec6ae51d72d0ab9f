from __future__ import annotations

import dataclasses

import pytest

from seqserve_export.tolerance import ParityError, check_tolerance
from seqserve_server.artifact.records import Verification


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


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_faithful_artifact_is_accepted(verification: Verification, precision: str) -> None:
    check_tolerance(verification, precision)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"max_logprob_difference": 2e-3},
            r"max log-probability difference is 0\.002, at most 0\.001",
        ),
        ({"max_logprob_difference": float("nan")}, "max log-probability difference is nan"),
        (
            {"mean_logprob_difference": 2e-4},
            r"mean log-probability difference is 0\.0002, at most 0\.0001",
        ),
        ({"bleu_torch": 30.0, "bleu_artifact": 29.9}, r"BLEU lost is 0\.1, at most 0\.05"),
        ({"sentences_equal": 44}, r"share of equal sentences is 0\.977778, at least 0\.998"),
        ({"top1_agreement": 0.99}, r"top-1 agreement is 0\.99, at least 0\.999 .* for fp32"),
        ({"top1_agreement": float("nan")}, "top-1 agreement is nan"),
    ],
)
def test_judge_refuses_with_both_numbers(
    verification: Verification, change: dict[str, float], message: str
) -> None:
    with pytest.raises(ParityError, match=message):
        check_tolerance(dataclasses.replace(verification, **change), "fp32")


def test_sensitive_model_may_differ_by_a_multiple_of_what_last_bits_do(
    verification: Verification,
) -> None:
    differing = dataclasses.replace(verification, mean_logprob_difference=5e-3, tokens=10_000)
    check_tolerance(dataclasses.replace(differing, logprob_sensitivity=2e-3), "int8")
    for sensitivity in (None, 1e-3):
        with pytest.raises(ParityError, match=r"mean log-probability difference is 0\.005"):
            check_tolerance(dataclasses.replace(differing, logprob_sensitivity=sensitivity), "int8")


def test_of_few_tokens_one_value_may_decide(verification: Verification) -> None:
    differing = dataclasses.replace(verification, mean_logprob_difference=5e-3)
    check_tolerance(dataclasses.replace(differing, tokens=200), "int8")
    with pytest.raises(ParityError, match=r"0\.005, at most 0\.0035 is allowed"):
        check_tolerance(dataclasses.replace(differing, tokens=400), "int8")
    with pytest.raises(ParityError, match="mean"):
        check_tolerance(dataclasses.replace(differing, tokens=200), "fp32")


def test_better_bleu_is_no_fault(verification: Verification) -> None:
    check_tolerance(dataclasses.replace(verification, bleu_torch=29.0, bleu_artifact=29.9), "fp32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_logprob_difference": 1.2}, r"max log-probability difference is 1\.2, at most 1"),
        ({"bleu_torch": 30.0, "bleu_artifact": 29.7}, r"BLEU lost is 0\.3, at most 0\.2"),
        ({"sentences_equal": 40}, r"share of equal sentences is 0\.888889, at least 0\.9"),
        ({"top1_agreement": 0.96}, r"top-1 agreement is 0\.96, at least 0\.97 .* for int8"),
    ],
)
def test_judge_refuses_integers_that_cost_too_much(
    verification: Verification, change: dict[str, float], message: str
) -> None:
    with pytest.raises(ParityError, match=message):
        check_tolerance(dataclasses.replace(verification, **change), "int8")


def test_integers_may_cost_a_little(verification: Verification) -> None:
    rounded = dataclasses.replace(
        verification,
        max_logprob_difference=0.8,
        bleu_torch=30.0,
        bleu_artifact=29.85,
        top1_agreement=0.975,
    )
    check_tolerance(rounded, "int8")
    with pytest.raises(ParityError):
        check_tolerance(rounded, "fp32")
