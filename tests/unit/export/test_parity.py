import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from tests.tiny import SENTENCES

from seqserve_export import parity
from seqserve_export.options import Caches, Scales
from seqserve_export.parity import Candidate, HeldOut, choose_self_test, verify
from seqserve_export.quantization import Calibration, quantize
from seqserve_export.tolerance import ParityError, check_tolerance
from seqserve_model.data import Pair
from seqserve_model.decoding import TargetScores
from seqserve_model.transformer import Transformer
from seqserve_server.artifact import manifest as manifest_file
from seqserve_server.artifact.records import SelfTest, Verification
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine.local_engine import LocalEngine

Compare = Callable[..., Verification]


@pytest.fixture(scope="module")
def compare(tiny_model: Transformer, tiny_artifact: Path, pairs: list[Pair]) -> Compare:
    """Compares a model with an artifact; the tiny ones, if nothing else is given."""

    def compare(
        model: Transformer = tiny_model,
        folder: Path = tiny_artifact,
        original: Transformer | None = None,
        **options: Any,
    ) -> Verification:
        open_original = None if original is None else lambda: original
        held_out = HeldOut(**{"name": "sentences.tsv", "pairs": pairs, **options})
        return verify(lambda: model, folder, held_out, open_original).verification

    return compare


@pytest.fixture(scope="module")
def verification(compare: Compare) -> Verification:
    return compare()


def test_faithful_artifact_passes(verification: Verification, pairs: list[Pair]) -> None:
    assert verification.sentences == verification.sentences_equal == len(pairs)
    assert verification.tokens > 3 * len(pairs)
    assert 0 < verification.max_logprob_difference < 1e-4
    assert verification.bleu_torch == verification.bleu_artifact
    assert verification.chrf_torch == verification.chrf_artifact > 0
    assert verification.data == "sentences.tsv"
    assert verification.torch == torch.__version__
    assert "nrefs:1" in verification.bleu_signature
    assert verification.top1_agreement == 1.0
    assert verification.sentences_as_original == len(pairs)
    check_tolerance(verification, "fp32")


@pytest.mark.parametrize(("unchanged", "warns"), [(95, False), (94, True)])
def test_report_warns_where_rounding_changes_many_sentences(
    verification: Verification, unchanged: int, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"sentences": 100, "sentences_as_original": unchanged}
    parity.report(dataclasses.replace(verification, **counts))
    lines = capsys.readouterr().out.splitlines()
    assert f"as at full precision  {unchanged} of 100, 100.00% of the tokens" in lines
    assert lines[-1].startswith("warning: rounding changes 6 of 100 sentences, ") == warns


@pytest.mark.parametrize("packs", [True, False])
def test_weights_that_are_large_are_not_packed(
    tiny_artifact: Path,
    compare: Compare,
    verification: Verification,
    packs: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = (tiny_artifact / "weights.bin").stat().st_size
    monkeypatch.setattr(manifest_file, "MAX_SMALL_BYTES", size if packs else size - 1)
    settings: list[tuple[str, str]] = []

    class Options(ort.SessionOptions):  # type: ignore[misc]
        def add_session_config_entry(self, key: str, value: str) -> None:
            settings.append((key, value))
            super().add_session_config_entry(key, value)

    monkeypatch.setattr(ort, "SessionOptions", Options)
    measured = compare()
    check_tolerance(measured, "fp32")
    assert measured.tokens == verification.tokens
    # The encoder, the decoder, the scorer, and what gathers candidates.
    assert settings.count(("session.disable_prepacking", "1")) == (0 if packs else 4)


def test_sentences_without_references_are_compared_but_not_scored(
    compare: Compare, pairs: list[Pair]
) -> None:
    unscored = [Pair(pair.source, "") for pair in pairs[:4]]
    measured = compare(pairs=unscored, max_decoding_length=6)
    assert measured.sentences_equal == 4
    assert measured.tokens <= 4 * 6
    assert 0 < measured.max_logprob_difference < 1e-4
    assert measured.bleu_torch is measured.chrf_artifact is None
    assert measured.bleu_signature == ""
    check_tolerance(measured, "fp32")


@pytest.mark.parametrize(("lead", "different"), [(5e-4, 0), (5e-3, 1)])
def test_a_token_that_ties_with_the_best_is_as_good(
    compare: Compare, monkeypatch: pytest.MonkeyPatch, lead: float, different: int
) -> None:
    real = parity.score_targets

    def scored(*arguments: Any) -> list[TargetScores]:
        scores = real(*arguments)
        scores[3].behind[1] = lead
        return scores

    monkeypatch.setattr(parity, "score_targets", scored)
    measured = compare()
    assert measured.sentences_equal == measured.sentences - different
    assert (measured.top1_agreement < 1.0) == bool(different)
    if not different:
        check_tolerance(measured, "fp32")


@pytest.fixture(scope="module")
def quantized(tiny_model: Transformer, tiny_calibration: Calibration) -> Transformer:
    return quantize(tiny_model, tiny_calibration, Scales.STATIC, Caches.FLOAT)


def agreement(model: Transformer, folder: Path, pairs: list[Pair]) -> float:
    """Counts tokens of the artifact that the model would have chosen in their place."""
    same: list[bool] = []
    end, longest = model.config.eos_id, model.config.max_target_length
    with LocalEngine(folder) as artifact, torch.inference_mode():
        for pair in pairs:
            source = artifact.encode(pair.source)
            [answer] = artifact.decode([source])
            tokens = [*answer.best.token_ids, end][:longest]
            target = torch.tensor([[model.config.bos_id, *tokens[:-1]]])
            best = model(torch.tensor([source]), torch.tensor([len(source)]), target).argmax(-1)
            same += [a == b for a, b in zip(best[0].tolist(), tokens, strict=True)]
    return sum(same) / len(same)


def test_rounding_is_compared_with_the_model_at_full_precision(
    compare: Compare,
    tiny_model: Transformer,
    quantized: Transformer,
    tiny_artifact: Path,
    tiny_int8_artifact: Path,
    pairs: list[Pair],
) -> None:
    with LocalEngine(tiny_artifact) as original, LocalEngine(tiny_int8_artifact) as integers:
        translations = original([pair.source for pair in pairs])
        sources = [original.encode(pair.source) for pair in pairs]
        same = [
            answer.best.token_ids == rounded.best.token_ids
            for answer, rounded in zip(
                original.decode(sources), integers.decode(sources), strict=True
            )
        ]
    # References that the original model meets in full: what rounding changes is lost.
    pairs = [Pair(pair.source, text) for pair, text in zip(pairs, translations, strict=True)]
    measured = compare(quantized, tiny_int8_artifact, original=tiny_model, pairs=pairs)
    assert measured.sentences_equal == len(pairs), "torch with integers is not the artifact"
    assert measured.max_logprob_difference < 1e-3
    assert measured.logprob_sensitivity is None, "measured for nothing"
    assert measured.bleu_torch == measured.chrf_torch == 100.0
    assert measured.bleu_artifact < 99
    assert measured.chrf_artifact < 99
    assert measured.sentences_as_original == sum(same) < len(pairs)
    expected = agreement(tiny_model, tiny_int8_artifact, pairs)
    assert measured.top1_agreement == pytest.approx(expected, abs=1e-4)
    assert 0.8 < expected < 1
    with pytest.raises(ParityError, match=r"BLEU lost is .*, at most 0\.2 is allowed for int8"):
        check_tolerance(measured, "int8")


def test_rounded_model_agrees_with_itself(
    compare: Compare, quantized: Transformer, tiny_int8_artifact: Path
) -> None:
    measured = compare(quantized, tiny_int8_artifact)
    assert measured.top1_agreement == 1.0
    assert measured.bleu_torch == measured.bleu_artifact


def test_other_rounding_than_the_artifact_has_is_refused(
    compare: Compare,
    tiny_model: Transformer,
    tiny_calibration: Calibration,
    tiny_int8_artifact: Path,
) -> None:
    other = quantize(tiny_model, tiny_calibration, Scales.ROW, Caches.FLOAT)
    measured = compare(other, tiny_int8_artifact)
    assert measured.logprob_sensitivity is not None
    with pytest.raises(ParityError, match="mean log-probability difference is 0"):
        check_tolerance(dataclasses.replace(measured, sentences_equal=measured.sentences), "int8")


def test_answers_that_are_no_numbers_are_refused(
    compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced = parity._score

    def spoilt(*inputs: Any) -> list[np.ndarray]:
        answers = forced(*inputs)
        answers[3][0] = np.nan
        return answers

    monkeypatch.setattr(parity, "_score", spoilt)
    verification = compare()
    assert np.isnan(verification.max_logprob_difference)
    with pytest.raises(ParityError, match="nan"):
        check_tolerance(verification, "fp32")


def test_proof_needs_a_sound_artifact(compare: Compare, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        compare(folder=tmp_path)


def test_sentence_is_one_that_both_decode_alike(
    tiny_model: Transformer, tiny_artifact: Path, tiny_offline: LocalEngine
) -> None:
    pairs = [Pair(sentence, "") for sentence in SENTENCES[:20]]
    held_out = HeldOut(pairs=pairs, name="")
    self_test = verify(lambda: tiny_model, tiny_artifact, held_out).self_test
    assert self_test is not None
    assert self_test.source in SENTENCES
    assert tiny_offline([self_test.source]) == [self_test.target] != [""]


def test_model_that_says_something_else_has_none(
    tiny_model: Transformer, tiny_int8_artifact: Path, tiny_offline: LocalEngine
) -> None:
    with LocalEngine(tiny_int8_artifact) as rounded:
        others = [
            Pair(sentence, "")
            for sentence in SENTENCES[:40]
            if rounded([sentence]) != tiny_offline([sentence])
        ]
    assert len(others) > 3
    held_out = HeldOut(pairs=others, name="")
    assert verify(lambda: tiny_model, tiny_int8_artifact, held_out).self_test is None


def candidate(name: str, margins: list[float]) -> Candidate:
    return Candidate(name, name.upper(), np.array(margins))


def test_surest_of_those_that_are_not_short() -> None:
    candidates = [
        candidate("short", [9.0, 9.0]),
        candidate("unsure once", [9.0, 9.0, 1.0, 9.0]),
        candidate("sure", [2.0, 2.0, 2.0, 2.0]),
        candidate("long", [1.5, 9.0, 9.0, 9.0, 9.0]),
        candidate("empty", [99.0]),
    ]
    assert choose_self_test(candidates) == SelfTest(source="sure", target="SURE")
    assert choose_self_test(candidates[-1:]) is None
    assert choose_self_test([]) is None
