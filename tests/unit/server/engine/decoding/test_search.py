from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import (
    EOS,
    VOCABULARY_SIZE,
    A,
    B,
    C,
    D,
    Rig,
    after,
    always,
    decode,
    make_options,
    make_request,
    make_sampling,
    outputs_of,
    random_table,
)
from tests.unit.server.engine.fake_runtime import FakeRuntime, make_manifest
from tests.unit.server.engine.idle import assert_idle

from seqserve_server.contract.events import Finished, StopReason
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.beam_batch import BeamBatch
from seqserve_server.engine.decoding.rows import Rows
from seqserve_server.engine.decoding.search import MAX_BEAM_SIZE, Search
from seqserve_server.engine.request import Request


def test_a_step_computes_the_most_that_any_row_needs() -> None:
    """Of a model whose vocabulary is larger than that of the tables."""
    cache = SlotCache(FakeRuntime(), 80)
    search = Search(cache, make_manifest(), str)

    def join(rows: list[int], **options: Any) -> None:
        search.join(rows, make_request([EOS], make_options(**options)))

    def leave(*rows: int) -> tuple[bool, bool]:
        for row in rows:
            search.leave(row)
        return computed()

    def computed() -> tuple[bool, bool]:
        """Whether steps list top tokens, and whether they return all logits."""
        return cache.top_k > 0, cache.num_logits > 0

    assert computed() == (False, False)
    join([50])
    assert computed() == (False, False)
    join(list(range(10)), beam_size=10)
    assert computed() == (True, False)
    for_the_beam = cache.top_k
    assert 20 <= for_the_beam < 30
    join([10], repetition_penalty=2.0)
    join([11], return_top_tokens=40)
    join([12], return_top_tokens=3)
    assert computed() == (True, True)
    assert 40 <= cache.top_k < 50
    leave(11)
    assert cache.top_k == for_the_beam
    leave(*range(9))
    assert cache.top_k == for_the_beam
    assert leave(9) == (True, True)
    assert 3 <= cache.top_k < 20
    assert leave(12) == (False, True)
    assert leave(10) == (False, False)
    assert leave(50, 51) == (False, False)
    # Steps list no more tokens than the vocabulary has.
    join(list(range(MAX_BEAM_SIZE)), beam_size=MAX_BEAM_SIZE)
    assert cache.top_k == make_manifest().architecture.vocabulary_size == 50


def test_free_rows_of_all_kinds_come_in_rising_order() -> None:
    rig = Rig()
    table = always({EOS: 0.6, A: 0.4})
    options = {"num_hypotheses": 2, "max_decoding_length": 1}
    rig.join([6, 1], table, beam_size=2, **options)
    rig.join([4, 3, 0], table, beam_size=3, **options)
    rig.join([5], table)
    rig.join([7, 2], table, sampling=make_sampling(1), **options)
    done = rig.step()
    assert done.rows == list(range(8))
    assert {type(row) for row in done.rows} == {int}
    assert len(done.finished) == 4


def test_a_row_that_never_joined_may_leave() -> None:
    rig = Rig()
    rig.search.leave(3)
    rig.join([0], always({A: 1.0}), max_decoding_length=1)
    assert rig.step().rows == [0]


FAULTS = {"in the rows": (Rows, "suppress"), "in the beams": (BeamBatch, "start")}


@pytest.mark.parametrize("fault", FAULTS)
def test_rows_of_a_request_that_failed_to_join_may_leave(fault: str) -> None:
    """A worker that fails lets all rows go, those that had not joined too."""
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
    assert (rig.cache.top_k, rig.cache.num_logits) == (0, 0)
    assert (rig.step().rows, rig.step().rows) == ([], [0])
    assert_idle(rig.search)


tokens = st.integers(1, VOCABULARY_SIZE - 1)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "max_decoding_length": st.integers(4, 9),
    "min_decoding_length": st.integers(0, 4),
    "length_penalty": st.sampled_from([0.0, 0.6]),
    "repetition_penalty": st.sampled_from([0.7, 1.3]),
    "no_repeat_ngram_size": st.integers(1, 3),
    "suppressed": st.just(((A,), (B, C))),
    "end_ids": st.just((B, D)),
    "stops": st.just(("bb", "cca")),
    "prefix": st.lists(tokens, min_size=1, max_size=3).map(tuple),
    "return_scores": st.just(False),
    "return_token_scores": st.just(True),
    "return_top_tokens": st.integers(1, 5),
    "force_end_token": st.just(True),
}
KINDS: list[dict[str, Any]] = [
    {},
    {"vocabulary": (EOS, A)},
    {"vocabulary": (EOS, A, C, D), "beam_size": 2},
    {"beam_size": 2, "num_hypotheses": 2},
    {"beam_size": 3, "patience": 2.0},
    {"beam_size": 3, "num_hypotheses": 3, "coverage_penalty": 0.5},
    {"beam_size": 2, "prefix": (C, A), "prefix_bias_beta": 0.4},
    {"beam_size": 3, "terms": ((D, C), (B,))},
    {"beam_size": 2, "num_hypotheses": 3, "return_alternatives": True},
    {"num_hypotheses": 3, "return_alternatives": True, "min_alternative_expansion_prob": 0.1},
    {"num_hypotheses": 3, "sampling": make_sampling(1)},
    {"num_hypotheses": 3, "sampling": make_sampling(2, top_k=4)},
    {"sampling": make_sampling(3, top_k=5, top_p=0.7)},
    {"sampling": make_sampling(4, min_p=0.5, temperature=2.0)},
    {"sampling": make_sampling(5, temperature=9.0), "prefix": (C, D, C), "prefix_bias_beta": 0.3},
]


@st.composite
def option_sets(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=3, unique=True))
    options = {name: draw(OPTIONS[name]) for name in names} | draw(st.sampled_from(KINDS))
    if "vocabulary" in options:
        # As the service makes it: with the tokens of the prefix, and those that end a hypothesis.
        needed = {*options.get("prefix", ()), *options.get("end_ids", ())}
        options["vocabulary"] = tuple(sorted({*options["vocabulary"], *needed}))
    return options


@settings(deadline=None, max_examples=60)
@given(data=st.data(), plan=st.lists(option_sets(), min_size=1, max_size=8))
def test_requests_side_by_side_decode_as_alone(
    data: st.DataObject, plan: list[dict[str, Any]]
) -> None:
    """Bit for bit, whatever joins, ends or leaves beside them, and whichever rows they have."""
    rig, requests = Rig(slots=60), list[Request]()
    found: list[tuple[Request, Finished]] = []
    gone: list[Request] = []
    for seed, options in enumerate(plan):
        count = len(rig.running)
        rows = data.draw(st.permutations(range(count, count + make_options(**options).rows)))
        requests.append(rig.join(rows, random_table(seed), **options))
        for _ in range(data.draw(st.integers(0, 3))):
            if rig.running:
                found += rig.step().finished
                rig.compact()
        if rig.running and data.draw(st.integers(0, 3)) == 0:
            request = data.draw(st.sampled_from(list(dict.fromkeys(rig.running.values()))))
            gone.append(request)
            rig.leave(*[row for row, owner in rig.running.items() if owner is request])
            rig.compact()
    found += rig.finish()
    assert len(found) + len(gone) == len(requests)
    for seed, (request, options) in enumerate(zip(requests, plan, strict=True)):
        if request not in gone:
            [hypotheses] = [finished.hypotheses for owner, finished in found if owner is request]
            assert repr(hypotheses) == repr(decode(random_table(seed), **options))
    assert_idle(rig.search)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_returning_more_or_less_does_not_change_the_tokens(options: dict[str, Any]) -> None:
    extras = {"return_token_scores": True, "return_top_tokens": 3}
    for seed in range(3):
        plain = decode(random_table(seed), **options)
        more = decode(random_table(seed), **options, **extras)
        assert [one._replace(token_scores=(), top_tokens=()) for one in more] == plain
        less = decode(random_table(seed), **options, return_scores=False)
        assert outputs_of(less) == outputs_of(plain)


# The first alternative, which is also the better sample, ends at once.
FORK = after({(): {EOS: 0.6, A: 0.4}, (A,): {B: 0.9, C: 0.1}, (A, B): {C: 0.9, D: 0.1}})


def interrupted(rig: Rig, request: Request) -> list[tuple[list[int], StopReason]]:
    """Gives tokens and stop reasons of what a request has found so far."""
    found = rig.search.interrupt(request).hypotheses
    return [(one.token_ids, one.stop_reason) for one in found]


@pytest.mark.parametrize("beam_size", [1, 2])
def test_an_interrupted_request_gets_its_own_tokens_and_no_others(beam_size: int) -> None:
    rig, requests = Rig(), list[Request]()
    for number, token in enumerate((A, B)):
        table = after({(): {token: 0.9, C: 0.1}, (token,): {D: 0.9, C: 0.1}, (C,): {D: 1.0}})
        rows = range(number * beam_size, (number + 1) * beam_size)
        requests.append(rig.join(rows, table, beam_size=beam_size))
    rig.step()
    rig.step()
    found = [interrupted(rig, request) for request in requests]
    assert found == [[([token, D], StopReason.TIME_LIMIT)] for token in (A, B)]


def test_an_interrupted_beam_search_gets_finished_and_running_hypotheses() -> None:
    rig = Rig()
    request = rig.join([0, 1], FORK, beam_size=2, num_hypotheses=3)
    rig.step()
    rig.step()
    assert interrupted(rig, request) == [
        ([], StopReason.EOS),
        ([A, B], StopReason.TIME_LIMIT),
        ([A, C], StopReason.TIME_LIMIT),
    ]


@pytest.mark.parametrize("beam_size", [1, 2])
@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ((), [([], StopReason.EOS), ([A], StopReason.TIME_LIMIT)]),
        ((C, D), [([C], StopReason.TIME_LIMIT)]),
    ],
    ids=["finished and running", "one within their prefix"],
)
def test_an_interrupted_request_gets_its_alternatives(
    beam_size: int, prefix: tuple[int, ...], expected: list[tuple[list[int], StopReason]]
) -> None:
    rig = Rig()
    options: dict[str, Any] = {"num_hypotheses": 2, "return_alternatives": True, "prefix": prefix}
    request = rig.join(range(2 * beam_size), FORK, beam_size=beam_size, **options)
    rig.step()
    assert interrupted(rig, request) == expected
