"""The sentence of the self-test has large margins, and decodes alike in torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny import SENTENCES

from seqserve_export.self_test import _surest_first, choose_self_test
from seqserve_model.data import Pair
from seqserve_model.transformer import Transformer
from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.engine.offline import Offline


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return [Pair(sentence, "") for sentence in SENTENCES[:20]]


def test_sentence_is_one_that_both_decode_alike(
    tiny_model: Transformer, tiny_artifact: Path, tiny_offline: Offline, pairs: list[Pair]
) -> None:
    found = choose_self_test(tiny_model, tiny_artifact, pairs)
    assert found is not None
    assert found.source in SENTENCES
    assert tiny_offline([found.source]) == [found.target] != [""]


def test_model_that_says_something_else_has_none(
    tiny_model: Transformer,
    tiny_artifact: Path,
    pairs: list[Pair],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def greedy(model: Transformer, sources: list[list[int]], *_: int) -> list[list[int]]:
        return [[5]] * len(sources)

    monkeypatch.setattr("seqserve_export.self_test.greedy_in_batches", greedy)
    assert choose_self_test(tiny_model, tiny_artifact, pairs) is None


def test_sentences_that_are_too_long_are_passed_over(
    tiny_model: Transformer, tiny_artifact: Path
) -> None:
    assert choose_self_test(tiny_model, tiny_artifact, [Pair("long " * 100, "")]) is None


def answer(margins: list[float], reason: StopReason = StopReason.EOS) -> Finished:
    top_tokens = [[(7, -0.1), (8, -0.1 - margin)] for margin in margins]
    tokens = [7] * (len(margins) - 1)
    return Finished([Hypothesis(tokens, -1.0, reason, top_tokens=top_tokens)])


def test_surest_of_those_that_are_not_short() -> None:
    answers = [
        answer([9.0, 9.0]),
        answer([3.0, 1.0, 3.0, 3.0]),
        answer([2.0, 2.0, 2.0, 2.0]),
        answer([9.0, 9.0, 9.0, 9.0], StopReason.LENGTH),
        answer([9.0, 9.0]),
        answer([1.5, 9.0, 9.0, 9.0, 9.0]),
    ]
    assert _surest_first(answers) == [2, 5, 1]
    assert _surest_first([]) == []
