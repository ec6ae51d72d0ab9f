"""Kept answers: whose they are, how many there is room for, and when they go."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from seqserve_server.contract.events import Finished, Hypothesis, StopReason, TopTokens
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.request import GenerateSpec, Priority
from seqserve_server.contract.stats import CacheCounts
from seqserve_server.front.models.answer_cache import AnswerCache, VersionAnswers

OPTIONS = DecodingOptions(max_decoding_length=20)
SPEC = GenerateSpec(source=[7, 300, 2], options=OPTIONS, client_id="ann")


def answer(*token_ids: int, stop: StopReason = StopReason.EOS) -> Finished:
    return Finished([Hypothesis(list(token_ids), -0.1 - 0.2, stop, normalized_score=-1e-9)])


def cache_of(max_bytes: int) -> AnswerCache:
    counts: dict[tuple[str, int], CacheCounts] = {}
    return AnswerCache(max_bytes, lambda *version: counts.setdefault(version, CacheCounts()))


@pytest.fixture
def answers() -> VersionAnswers:
    return cache_of(100_000).version("m", 1)


def source(number: int) -> GenerateSpec:
    return replace(SPEC, source=[number, 2])


def asked(answers: VersionAnswers, spec: GenerateSpec) -> Finished | None:
    return answers.get(answers.key_of(spec))


def keep(answers: VersionAnswers, spec: GenerateSpec, kept: Finished) -> None:
    answers.keep(answers.key_of(spec), kept)


def test_an_answer_comes_back_to_the_last_bit(answers: VersionAnswers) -> None:
    best = answer(1, 2).best._replace(
        token_scores=[-0.3, 1e-300],
        top_tokens=[TopTokens.of([(5, -0.125), (6, -3.3)])],
        attention=b"\0\1\2\3",
        text_length=4,
        unmet_terms=[1],
    )
    keep(answers, SPEC, Finished([best, *answer(3).hypotheses]))
    assert asked(answers, SPEC) == Finished([best, *answer(3).hypotheses])


def test_who_gets_an_answer_cannot_change_what_is_kept(answers: VersionAnswers) -> None:
    keep(answers, SPEC, answer(1, 2))
    first = asked(answers, SPEC)
    assert first is not None
    first.best.token_ids.append(9)
    assert asked(answers, SPEC) == answer(1, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": [7, 300]},
        {"source": [7, 301, 2]},
        {"client_id": "bob"},
        {"options": replace(OPTIONS, max_decoding_length=21)},
        {"options": replace(OPTIONS, beam_size=2)},
        {"options": replace(OPTIONS, prefix=(5,))},
        {"options": replace(OPTIONS, return_scores=False)},
        {"options": replace(OPTIONS, sampling=Sampling(1.0, 0, 1.0, 0.0, seed=1))},
    ],
)
def test_another_question_is_asked_anew(answers: VersionAnswers, changes: dict[str, Any]) -> None:
    keep(answers, SPEC, answer(1))
    assert asked(answers, replace(SPEC, **changes)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"deadline_s": 5.0, "arrived_s": 1.0},
        {"flow_id": "another connection", "call_id": "c", "is_bulk": True},
        {"priority": Priority.LOW},
        {"streamed": True},
        {"options": replace(OPTIONS, time_limit_s=3.0)},
    ],
)
def test_equal_questions_have_one_answer(answers: VersionAnswers, changes: dict[str, Any]) -> None:
    keep(answers, SPEC, answer(1))
    assert asked(answers, replace(SPEC, **changes)) == answer(1)


def test_what_a_time_limit_cut_short_is_not_kept(answers: VersionAnswers) -> None:
    keep(answers, SPEC, answer(1, stop=StopReason.TIME_LIMIT))
    assert asked(answers, SPEC) is None
    keep(answers, SPEC, answer(1, stop=StopReason.LENGTH))
    assert asked(answers, SPEC) is not None


def test_versions_share_room_but_no_answers_and_one_that_is_unloaded_forgets_its_own() -> None:
    cache = cache_of(100_000)
    first, second = cache.version("m", 1), cache.version("m", 2)
    keep(first, SPEC, answer(1))
    assert asked(second, SPEC) is None
    keep(second, SPEC, answer(2))
    assert (asked(first, SPEC), asked(second, SPEC)) == (answer(1), answer(2))
    first.close()
    assert first.counts.held_bytes == 0 < second.counts.held_bytes
    # A call that ends after its version does.
    keep(first, SPEC, answer(1))
    assert asked(first, SPEC) is None and asked(second, SPEC) == answer(2)
    assert asked(cache.version("m", 1), SPEC) is None


def test_what_was_used_longest_ago_makes_room() -> None:
    answers = cache_of(2_000).version("m", 1)
    for number in range(3):
        keep(answers, source(number), answer(number))
    size = answers.counts.held_bytes // 3
    fit = 2_000 // size
    for number in range(3, fit):
        keep(answers, source(number), answer(number))
    assert answers.counts.evictions == 0
    assert asked(answers, source(0)) is not None
    keep(answers, source(fit), answer(fit))
    assert asked(answers, source(1)) is None, "it was used longest ago"
    assert asked(answers, source(0)) == answer(0)
    assert answers.counts.evictions == 1


def test_an_answer_larger_than_all_room_throws_out_no_other() -> None:
    answers = cache_of(2_000).version("m", 1)
    keep(answers, source(0), answer(0))
    keep(answers, source(1), answer(*range(5_000)))
    assert asked(answers, source(1)) is None
    assert asked(answers, source(0)) == answer(0)


def test_an_answer_that_is_kept_twice_counts_once(answers: VersionAnswers) -> None:
    keep(answers, SPEC, answer(1))
    size = answers.counts.held_bytes
    keep(answers, SPEC, answer(1))
    assert answers.counts.held_bytes == size


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 20, 1_000])
def test_memory_stays_within_the_bound(length: int) -> None:
    most = 2_000_000
    kept = answer(*range(300, 300 + length))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        answers = cache_of(most).version("m", 1)
        number = 0
        # Twice what there is room for.
        while 2 * answers.counts.evictions <= number:
            keep(answers, source(number), kept)
            number += 1
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answers.counts.held_bytes <= most
    assert held - before <= most
