"""Rig of every kind beside each other: what is asked of each step, and to whom answers go."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import (
    EOS,
    WORDS,
    Rig,
    Steps,
    after,
    always,
    anything,
    made,
)
from tests.unit.server.engine.fake_runtime import FakeRuntime, make_manifest
from tests.unit.server.engine.requests import generation

from seqserve_server.contract.events import Finished, StopReason
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.beam_batch import BeamBatch
from seqserve_server.engine.decoding.rows import Rows
from seqserve_server.engine.decoding.search import MAX_BEAM_SIZE, Search
from seqserve_server.engine.request import Request

A, B, C, D = 1, 2, 3, 4


def drawing(seed: int = 1, *, top_k: int = 0, top_p: float = 1.0) -> Sampling:
    return Sampling(1.0, top_k, top_p, 0.0, seed)


def test_most_that_any_request_asks_for_is_asked_for() -> None:
    """Of a model with more words than these."""
    cache = SlotCache(FakeRuntime(), 80)
    search = Search(cache, make_manifest(), str)

    def join(rows: list[int], **options: Any) -> None:
        some = DecodingOptions(max_decoding_length=9, **options)
        search.join(rows, generation([EOS], some))

    def leave(*rows: int) -> tuple[bool, bool]:
        for row in rows:
            search.leave(row)
        return asked()

    def asked() -> tuple[bool, bool]:
        return cache.top_k > 0, cache.num_logits > 0

    assert asked() == (False, False)
    join([50])
    assert asked() == (False, False)
    join(list(range(10)), beam_size=10)
    assert asked() == (True, False)
    few = cache.top_k
    assert 20 <= few < 30
    join([10], repetition_penalty=2.0)
    join([11], return_top_tokens=40)
    join([12], return_top_tokens=3)
    assert asked() == (True, True)
    assert 40 <= cache.top_k < 50
    leave(11)
    assert cache.top_k == few
    leave(*range(9))
    assert cache.top_k == few
    assert leave(9) == (True, True)
    assert 3 <= cache.top_k < 20
    assert leave(12) == (False, True)
    assert leave(10) == (False, False)
    assert leave(50, 51) == (False, False)
    # No more is ranked than there are words.
    join(list(range(MAX_BEAM_SIZE)), beam_size=MAX_BEAM_SIZE)
    assert cache.top_k == make_manifest().architecture.vocabulary_size == 50


def test_row_that_is_moved_goes_on_asking_until_it_leaves() -> None:
    rows = Rig()
    rows.join([1], always({A: 1.0}), return_top_tokens=3)
    rows.join([2], always({A: 1.0}), repetition_penalty=2.0)
    rows.move(1, 0)
    rows.move(2, 1)
    assert rows.cache.top_k
    assert rows.cache.num_logits
    rows.leave(0, 1)
    assert not rows.cache.top_k
    assert not rows.cache.num_logits


def test_plain_rows_run_beside_beams_and_keep_the_graphs_choice() -> None:
    rows = Rig()
    beam = rows.join([0, 2], always({A: 0.6, EOS: 0.4}), beam_size=2)
    greedy = rows.join([1], always({C: 0.6, EOS: 0.4}), max_decoding_length=3)
    assert rows.step() == ([], [])
    assert rows.search.last_token(1) == C
    ended = rows.step()
    assert ended.rows == [0, 2]
    assert [request for request, _ in ended.finished] == [beam]
    done = rows.step()
    assert done.rows == [1]
    [(request, answer)] = done.finished
    assert request is greedy
    assert answer.best.token_ids == [C, C, C]


def test_rows_that_are_free_come_in_rising_order_whatever_they_were() -> None:
    rows = Rig()
    ends = always({EOS: 0.6, A: 0.4})
    options = {"num_hypotheses": 2, "max_decoding_length": 1}
    rows.join([6, 1], ends, beam_size=2, **options)
    rows.join([4, 3, 0], ends, beam_size=3, **options)
    rows.join([5], ends)
    rows.join([7, 2], ends, sampling=drawing(), **options)
    ended = rows.step()
    assert ended.rows == list(range(8))
    assert {type(row) for row in ended.rows} == {int}
    assert len(ended.finished) == 4


def test_row_that_is_not_there_may_leave() -> None:
    """A worker that fails lets all rows go, also those of a request that had not joined yet."""
    rows = Rig()
    rows.search.leave(3)
    rows.join([0], always({A: 1.0}), max_decoding_length=1)
    assert rows.step().rows == [0]


FAULTS = {"in the rows": (Rows, "suppress"), "in the beams": (BeamBatch, "start")}


@pytest.mark.parametrize("fault", FAULTS)
def test_request_that_could_not_join_leaves_no_trace(fault: str) -> None:
    """A worker that fails lets its rows go as if they had joined."""
    rig = Rig()
    rig.join([0], always({A: 1.0}), max_decoding_length=2)
    options: dict[str, Any] = {
        **{"vocabulary": (EOS, A), "return_top_tokens": 2},
        **{"beam_size": 2, "min_decoding_length": 1},
    }
    with mock.patch.object(*FAULTS[fault], side_effect=MemoryError), pytest.raises(MemoryError):
        rig.join([1, 2], always({A: 1.0}), **options)
    for row in (1, 2):
        rig.search.leave(row)
    assert (rig.cache.top_k, rig.cache.num_logits, rig.cache.projects) == (0, 0, True)
    assert (rig.step().rows, rig.step().rows) == ([], [0])
    rig.search.assert_idle()


def test_words_that_were_banned_are_free_for_the_next() -> None:
    rows = Rig()
    table = always({EOS: 0.9, A: 0.1})
    rows.join([0], table, min_decoding_length=5)
    rows.step()
    rows.leave(0)
    rows.join([0], table)
    assert rows.step().rows == [0]


likely = st.integers(1, WORDS - 1)
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "max_decoding_length": st.integers(4, 9),
    "min_decoding_length": st.integers(0, 4),
    "length_penalty": st.sampled_from([0.0, 0.6]),
    "repetition_penalty": st.sampled_from([0.7, 1.3]),
    "no_repeat_ngram_size": st.integers(1, 3),
    "suppressed": st.just(((A,), (B, C))),
    "end_ids": st.just((B, D)),
    "stops": st.just(("bb", "cca")),
    "prefix": st.lists(likely, min_size=1, max_size=3).map(tuple),
    "return_scores": st.just(False),
    "return_token_scores": st.just(True),
    "return_top_tokens": st.integers(1, 5),
}
KINDS: list[dict[str, Any]] = [
    {},
    {"beam_size": 2, "num_hypotheses": 2},
    {"beam_size": 3, "patience": 2.0},
    {"beam_size": 3, "num_hypotheses": 3, "coverage_penalty": 0.5},
    {"beam_size": 2, "prefix": (C, A), "prefix_bias_beta": 0.4},
    {"beam_size": 3, "terms": ((D, C), (B,))},
    {"beam_size": 2, "num_hypotheses": 3, "return_alternatives": True},
    {"num_hypotheses": 3, "return_alternatives": True, "min_alternative_expansion_prob": 0.1},
    {"num_hypotheses": 3, "sampling": drawing()},
    {"num_hypotheses": 3, "sampling": drawing(2, top_k=4)},
    {"sampling": drawing(3, top_k=5, top_p=0.7)},
]


@st.composite
def option_sets(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(OTHERS)), max_size=3, unique=True))
    return {name: draw(OTHERS[name]) for name in names} | draw(st.sampled_from(KINDS))


@settings(deadline=None, max_examples=30)
@given(data=st.data(), plan=st.lists(option_sets(), min_size=1, max_size=8))
def test_requests_side_by_side_are_searched_as_alone(
    data: st.DataObject, plan: list[dict[str, Any]]
) -> None:
    """Bit for bit, whoever joins, ends or leaves beside them, and wherever their rows are."""
    rows, requests = Rig(slots=60), list[Request]()
    found: list[tuple[Request, Finished]] = []
    gone: list[Request] = []
    for seed, options in enumerate(plan):
        count = len(rows.held)
        needed = made(**options).rows
        places = data.draw(st.permutations(range(count, count + needed)))
        requests.append(rows.join(places, anything(seed), **options))
        for _ in range(data.draw(st.integers(0, 3))):
            if rows.held:
                found += rows.step().finished
                rows.compact()
        if rows.held and data.draw(st.integers(0, 3)) == 0:
            request = data.draw(st.sampled_from(list(dict.fromkeys(rows.held.values()))))
            gone.append(request)
            rows.leave(*[row for row, owner in rows.held.items() if owner is request])
            rows.compact()
    while rows.held:
        found += rows.step().finished
        rows.compact()
    assert len(found) + len(gone) == len(requests)
    for seed, (request, options) in enumerate(zip(requests, plan, strict=True)):
        if request not in gone:
            [ours] = [finished.hypotheses for owner, finished in found if owner is request]
            assert repr(ours) == repr(Steps(anything(seed), **options).finish())
    assert not rows.cache.top_k
    assert not rows.cache.num_logits


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_what_is_not_asked_for_changes_nothing_else(options: dict[str, Any]) -> None:
    extras = {"return_token_scores": True, "return_top_tokens": 3}
    for seed in range(3):
        plain = Steps(anything(seed), **options).finish()
        asked = Steps(anything(seed), **options, **extras).finish()
        assert [one._replace(token_scores=(), top_tokens=()) for one in asked] == plain
        silent = Steps(anything(seed), **options, return_scores=False).finish()
        assert [one.token_ids for one in silent] == [one.token_ids for one in plain]


# Whose first alternative ends at once, and so does the better sample.
FORK = after({(): {EOS: 0.6, A: 0.4}, (A,): {B: 0.9, C: 0.1}, (A, B): {C: 0.9, D: 0.1}})


def cut(rows: Rig, request: Request) -> list[tuple[list[int], StopReason]]:
    """Gives words and stop reasons of what a request has found so far."""
    found = rows.search.interrupt(request).hypotheses
    return [(one.token_ids, one.stop_reason) for one in found]


@pytest.mark.parametrize("beam_size", [1, 2])
def test_interrupted_request_has_its_own_words_and_no_others(beam_size: int) -> None:
    rows = Rig()
    tables = [
        after({(): {word: 0.9, C: 0.1}, (word,): {D: 0.9, C: 0.1}, (C,): {D: 1.0}})
        for word in (A, B)
    ]
    places = [range(n * beam_size, (n + 1) * beam_size) for n in range(2)]
    requests = [
        rows.join(place, table, beam_size=beam_size)
        for place, table in zip(places, tables, strict=True)
    ]
    rows.step()
    rows.step()
    assert [cut(rows, request) for request in requests] == [
        [([A, D], StopReason.TIME_LIMIT)],
        [([B, D], StopReason.TIME_LIMIT)],
    ]


@pytest.mark.parametrize("beam_size", [1, 2])
def test_interrupted_alternatives_are_those_that_have_ended_and_those_that_go_on(
    beam_size: int,
) -> None:
    rows = Rig()
    request = rows.join(
        range(2 * beam_size), FORK, beam_size=beam_size, num_hypotheses=2, return_alternatives=True
    )
    rows.step()
    assert cut(rows, request) == [([], StopReason.EOS), ([A], StopReason.TIME_LIMIT)]


@pytest.mark.parametrize("beam_size", [1, 2])
def test_interrupted_alternatives_are_one_within_their_prefix(beam_size: int) -> None:
    rows = Rig()
    options: dict[str, Any] = {"prefix": (C, D), "return_alternatives": True}
    places = range(3 * beam_size)
    request = rows.join(places, FORK, beam_size=beam_size, num_hypotheses=3, **options)
    rows.step()
    assert cut(rows, request) == [([C], StopReason.TIME_LIMIT)]


def test_interrupted_beam_has_what_has_ended_and_what_its_beams_say() -> None:
    rows = Rig()
    request = rows.join([0, 1], FORK, beam_size=2, num_hypotheses=3)
    rows.step()
    rows.step()
    assert cut(rows, request) == [
        ([], StopReason.EOS),
        ([A, B], StopReason.TIME_LIMIT),
        ([A, C], StopReason.TIME_LIMIT),
    ]
