"""Rows follow their parents: the places of a request's rows, and what moves between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve_server.engine.choice import Choice, View
from seqserve_server.engine.request import (
    DecodingOptions,
    Finished,
    Hypothesis,
    Request,
    Sampling,
    StopReason,
)
from seqserve_server.engine.search import MOST_BEAMS, Search

from .fake_runtime import BOS, EOS, make_manifest

SLOTS = 12
ANSWER = [Hypothesis([7], -1.0, StopReason.EOS)]


@dataclass
class WrittenCache:
    """Keeps what each row has read, where a real one keeps keys and values."""

    slots: int = SLOTS
    read: list[list[int]] = field(default_factory=lambda: [[] for _ in range(SLOTS)])
    banned: dict[int, Sequence[int]] = field(default_factory=dict)
    copies: int = 0
    ranked: int = 0
    shows_scores: bool = False

    def __post_init__(self) -> None:
        self.tokens = np.full((SLOTS, 1), BOS)
        self.lengths = np.zeros(SLOTS, np.int32)
        self.log_probabilities = np.zeros(SLOTS, np.float32)
        self.scored = np.array(True)

    def step(self, rows: int) -> None:
        for row in range(rows):
            self.read[row].append(int(self.tokens[row, 0]))
        self.lengths[:rows] += 1
        # What a graph would have chosen; searches of their own must write over it.
        self.tokens[:rows, 0] = 99

    def branch(self, sources: list[int], targets: list[int]) -> None:
        assert not set(sources) & set(targets), "a row is copied that is written over"
        assert len(set(targets)) == len(targets)
        for source, target in zip(sources, targets, strict=True):
            self.read[target] = list(self.read[source])
        self.copies += len(targets)

    def ban(self, row: int, words: Sequence[int]) -> None:
        self.banned[row] = words

    def unban(self, row: int) -> None:
        self.banned.pop(row, None)


class Told:
    """A search that goes on as it was told beforehand."""

    def __init__(self, choices: list[Choice], **asks: Any) -> None:
        self._choices = choices
        self.ranked = asks.get("ranked", 0)
        self.shows_scores = asks.get("shows_scores", False)
        self.bans_some = asks.get("bans_some", False)
        self.rows = 0

    def bans(self) -> list[list[int]]:
        # Number 0 may say everything, number 1 not the word 1, and so on.
        return [[row] if row else [] for row in range(self.rows)]

    def choose(self, view: View) -> Choice:
        choice = self._choices.pop(0)
        self.rows = len(choice.words)
        return choice


class Rows:
    """A search of rows over a cache that is a list."""

    def __init__(self) -> None:
        self.cache = WrittenCache()
        self.search = Search(self.cache, make_manifest(), str)  # type: ignore[arg-type]

    def join(self, rows: list[int], told: Told | None = None, **options: Any) -> Request:
        plain = DecodingOptions(max_decoding_length=10, **options)
        request = Request(source=[5, EOS], options=plain, receive=lambda event: None)
        if told is not None:
            told.rows = len(rows)
            self.search._search = lambda options: told  # type: ignore[method-assign]
        self.search.join(list(rows), request)
        return request

    def step(self, rows: int) -> Any:
        self.cache.step(rows)
        return self.search.advance(rows)

    def places(self, row: int) -> list[int]:
        return self.search._groups[row].rows


def beams(size: int) -> dict[str, Any]:
    return {"beam_size": size}


def samples(count: int) -> dict[str, Any]:
    return {"num_hypotheses": count, "sampling": Sampling(1.0, 0, 1.0, 0.0, seed=1)}


def test_beam_that_goes_on_stays_where_it_is() -> None:
    rows = Rows()
    rows.join([0, 1, 2], Told([Choice([0, 1, 2], [5, 6, 7], [])]), **beams(3))
    assert rows.step(3) == ([], [])
    assert rows.places(0) == [0, 1, 2]
    assert rows.cache.tokens[:3, 0].tolist() == [5, 6, 7]
    assert rows.cache.copies == 0


def test_beams_that_only_change_their_order_are_not_copied() -> None:
    rows = Rows()
    rows.join([0, 1, 2], Told([Choice([2, 0, 1], [5, 6, 7], [])]), **beams(3))
    rows.step(3)
    assert rows.places(0) == [2, 0, 1]
    assert rows.cache.tokens[:3, 0].tolist() == [6, 7, 5]
    assert rows.cache.copies == 0


def test_beam_with_two_children_is_copied_once() -> None:
    rows = Rows()
    rows.join([0, 1, 2], Told([Choice([1, 1, 2], [5, 6, 7], [])]), **beams(3))
    rows.cache.read = [[10], [11], [12], *rows.cache.read[3:]]
    rows.step(3)
    assert rows.places(0) == [1, 0, 2]
    assert rows.cache.read[:3] == [[11, BOS], [11, BOS], [12, BOS]]
    assert rows.cache.tokens[:3, 0].tolist() == [6, 5, 7]


def test_rows_that_do_not_go_on_are_free() -> None:
    rows = Rows()
    told = Told([Choice([0, 2], [5, 6], []), Choice([1], [7], []), Choice([], [], ANSWER)])
    request = rows.join([3, 1, 0], told, **samples(3))
    assert rows.step(4) == ([1], [])
    assert rows.step(4) == ([3], [])
    assert rows.places(0) == [0]
    assert rows.step(4) == ([0], [(request, Finished(ANSWER))])


@settings(max_examples=60)
@given(data=st.data())
def test_next_rows_have_read_what_their_parents_have(data: st.DataObject) -> None:
    """Two requests side by side, in places that are mixed, over some steps."""
    sizes = data.draw(st.tuples(st.integers(1, 4), st.integers(2, 5)))
    places = data.draw(st.permutations(range(sum(sizes))))
    rows = Rows()
    texts: list[list[list[int]]] = []
    told: list[list[Choice]] = [[], []]
    joined = 0
    for number, size in enumerate(sizes):
        rows.join(places[joined : joined + size], Told(told[number]), **samples(size))
        texts.append([[BOS] for _ in range(size)])
        joined += size
    groups = list(dict.fromkeys(rows.search._groups.values()))
    for _ in range(data.draw(st.integers(1, 5))):
        for number, group in enumerate(groups):
            old = texts[number]
            children = st.lists(
                st.tuples(st.integers(0, len(old) - 1), st.integers(4, 40)),
                min_size=1,
                max_size=len(group.rows),
            )
            drawn = data.draw(children)
            parents, words = [parent for parent, _ in drawn], [word for _, word in drawn]
            told[number].append(Choice(parents, words, []))
            texts[number] = [[*old[parent], word] for parent, word in drawn]
        before = sorted(row for group in groups for row in group.rows)
        ended = rows.step(joined).rows
        held = sorted(row for group in groups for row in group.rows)
        assert sorted([*held, *ended]) == before, "a row is lost, or has two owners"
        for number, group in enumerate(groups):
            said = [[*rows.cache.read[row], int(rows.cache.tokens[row, 0])] for row in group.rows]
            assert said == texts[number]


def test_row_that_is_moved_keeps_its_place_in_its_group() -> None:
    rows = Rows()
    told = Told([Choice([0, 1], [5, 6], []), Choice([1, 0], [7, 8], [])])
    rows.join([4, 2], told, **beams(2))
    rows.step(5)
    rows.search.move(4, 0)
    assert rows.places(0) == rows.places(2) == [0, 2]
    assert 4 not in rows.search._groups
    rows.cache.read[0] = rows.cache.read[4]
    rows.step(3)
    assert rows.places(0) == [2, 0]
    assert [rows.search.word(row) for row in (2, 0)] == [7, 8]


def test_bans_go_to_the_rows_that_they_are_meant_for() -> None:
    rows = Rows()
    told = Told([Choice([2, 0, 1], [5, 6, 7], []), Choice([0, 0], [8, 9], [])], bans_some=True)
    rows.join([0, 1, 2], told, **beams(3))
    assert rows.cache.banned == {1: [1], 2: [2]}
    rows.step(3)
    # Their order is now 2, 0, 1, and the first of them may say everything.
    assert rows.cache.banned == {0: [1], 1: [2]}
    assert rows.step(3).rows == [0]
    rows.search.leave(0)
    assert rows.cache.banned == {1: [1]}


def test_most_that_any_search_asks_for_is_asked_for() -> None:
    rows = Rows()
    assert (rows.cache.ranked, rows.cache.shows_scores) == (0, False)
    rows.join([0, 1, 2], Told([], ranked=6), **beams(3))
    assert rows.cache.ranked == 8, "in powers of two"
    rows.join([3], Told([], shows_scores=True), repetition_penalty=2.0)
    rows.join([4], Told([], ranked=3), return_top_tokens=3)
    assert (rows.cache.ranked, rows.cache.shows_scores) == (8, True)
    for row in (0, 1, 2):
        rows.search.leave(row)
    assert (rows.cache.ranked, rows.cache.shows_scores) == (4, True)
    rows.search.leave(3)
    rows.search.leave(4)
    assert (rows.cache.ranked, rows.cache.shows_scores) == (0, False)


def test_no_more_is_ranked_than_there_are_words() -> None:
    rows = Rows()
    rows.join([0, 1], Told([], ranked=2 * MOST_BEAMS), **beams(2))
    assert rows.cache.ranked == make_manifest().architecture.vocabulary_size == 50


def test_plain_rows_run_beside_the_others_and_keep_the_graphs_choice() -> None:
    rows = Rows()
    rows.join([0, 2], Told([Choice([1, 1], [5, 6], []), Choice([], [], ANSWER)]), **beams(2))
    greedy = rows.join([1])
    assert rows.step(3) == ([], [])
    assert rows.search.word(1) == 99
    ended = rows.step(3)
    assert ended.rows == [0, 2]
    assert [request.options.beam_size for request, _ in ended.finished] == [2]
    rows.cache.step(3)
    rows.cache.tokens[1, 0] = EOS
    for row in ended.rows:
        rows.search.leave(row)
    done = rows.search.advance(2)
    assert done.rows == [1]
    [(request, answer)] = done.finished
    assert request is greedy
    assert answer.best.token_ids == [99, 99]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"beam_size": 2}, "BeamSearch"),
        (samples(1), "IndependentSearch"),
        ({"repetition_penalty": 1.2}, "IndependentSearch"),
        ({"prefix": (5,)}, "IndependentSearch"),
        ({"stops": ("a",)}, "IndependentSearch"),
        ({"return_token_scores": True}, "IndependentSearch"),
        ({"return_top_tokens": 1}, "IndependentSearch"),
        ({"min_decoding_length": 3}, None),
        ({"length_penalty": 3.0}, None),
        ({"return_scores": False}, None),
        ({"return_attention": True}, None),
        ({}, None),
    ],
)
def test_only_what_needs_it_has_a_search_of_its_own(
    options: dict[str, Any], kind: str | None
) -> None:
    rows = Rows()
    request = rows.join(list(range(2 if kind == "BeamSearch" else 1)), **options)
    group = rows.search._groups.get(0)
    assert (type(group.search).__name__ if group else None) == kind
    assert request.options.is_plain == (kind is None)
