"""The words that rows restrict themselves to: what steps are told, and what each row gets of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.server.engine.fake_runtime import FakeRuntime, make_manifest

from seqserve_server.engine.cache import MASKED_LOGIT, SlotCache
from seqserve_server.engine.decoding.allowed_tokens import Vocabularies
from seqserve_server.engine.runtime import Sizes

WORDS = make_manifest().architecture.vocabulary_size


class StepEvents:
    """Stands where the cache would be; the score of a word is its number, and 100 for each row."""

    vocabulary_size = 100

    def __init__(self) -> None:
        self.projects, self.shows_listed = True, False
        self.told: list[list[int]] = []
        self.bans: dict[int, list[int]] = {}

    def allow(self, words: NDArray[Any]) -> None:
        self.told.append(words.tolist())

    def allowed_scores(self, row: int) -> NDArray[Any]:
        return np.array(self.told[-1], np.float32) + 100 * row

    def banned(self, row: int) -> Sequence[int]:
        return self.bans.get(row, ())


@pytest.fixture
def cache() -> StepEvents:
    return StepEvents()


@pytest.fixture
def vocabularies(cache: StepEvents) -> Vocabularies:
    return Vocabularies(cast(SlotCache, cache))


def test_steps_score_each_word_of_any_row_once(
    vocabularies: Vocabularies, cache: StepEvents
) -> None:
    vocabularies.join((4, 9))
    vocabularies.join((2, 4, 7))
    assert cache.told[-1] == [2, 4, 7, 9]


def test_row_gets_the_scores_of_its_own_words(
    vocabularies: Vocabularies, cache: StepEvents
) -> None:
    vocabularies.join((4, 9))
    vocabularies.join((2, 4, 7))
    words, found = vocabularies.scores(1, (4, 9))
    assert (words.tolist(), found.tolist()) == ([4, 9], [104.0, 109.0])
    words, found = vocabularies.scores(3, (2, 4, 7))
    assert (words.tolist(), found.tolist()) == ([2, 4, 7], [302.0, 304.0, 307.0])


def test_what_a_row_must_not_say_is_out_of_reach(
    vocabularies: Vocabularies, cache: StepEvents
) -> None:
    vocabularies.join((2, 4, 7), 2)
    cache.bans[1] = [4, 5]
    assert vocabularies.scores(1, (2, 4, 7))[1].tolist() == [102.0, MASKED_LOGIT, 107.0]
    assert vocabularies.scores(0, (2, 4, 7))[1].tolist() == [2.0, 4.0, 7.0]


def test_steps_are_told_anew_only_where_it_changes_them(
    vocabularies: Vocabularies, cache: StepEvents
) -> None:
    vocabularies.join((4, 9), 2)
    vocabularies.join((4, 9))
    assert cache.told == [[4, 9]]
    vocabularies.leave((4, 9))
    vocabularies.leave((4, 9))
    assert cache.told == [[4, 9]]
    vocabularies.leave((4, 9))
    assert cache.told == [[4, 9], []]


def test_words_leave_with_the_last_row_that_has_them(
    vocabularies: Vocabularies, cache: StepEvents
) -> None:
    vocabularies.join((4, 9))
    vocabularies.join((2, 4, 7), 2)
    vocabularies.leave((2, 4, 7))
    vocabularies.leave((4, 9))
    assert cache.told[-1] == [2, 4, 7]
    assert vocabularies.scores(0, (2, 4, 7))[1].tolist() == [2.0, 4.0, 7.0]


def test_all_words_are_looked_at_unless_every_row_has_its_own(
    vocabularies: Vocabularies, cache: StepEvents
) -> None:
    vocabularies.join(())
    assert cache.projects
    vocabularies.join((4, 9))
    assert cache.projects
    vocabularies.leave(())
    assert not cache.projects
    vocabularies.leave((4, 9))
    assert cache.projects


class Asked:
    """Stands for the step, and notes what is asked of it."""

    sizes: Sizes

    def run(self, rows: int, sizes: Sizes) -> None:
        self.sizes = sizes


def asked(cache: SlotCache) -> tuple[bool, bool, bool]:
    """Tells whether all scores are given out, whether all words are projected, and some alone."""
    step = cache._step = cast(Any, Asked())
    cache.advance(1)
    return step.sizes.logits > 0, step.sizes.projects, step.sizes.allowed_groups > 0


def test_what_is_cheaper_is_asked_of_the_step() -> None:
    cache = SlotCache(FakeRuntime(), slots=4)
    vocabularies = Vocabularies(cache)
    few, others = tuple(range(WORDS // 8)), tuple(range(WORDS // 8, WORDS // 3))
    vocabularies.join(few)
    assert asked(cache) == (False, False, True)
    vocabularies.join((), rows=2)
    assert asked(cache) == (False, True, True)
    # Together they are more than a quarter.
    vocabularies.join(others)
    assert asked(cache) == (True, True, False)
    vocabularies.leave(others)
    assert asked(cache) == (False, True, True)
    vocabularies.leave(())
    vocabularies.leave(())
    assert asked(cache) == (False, False, True)
    vocabularies.leave(few)
    assert asked(cache) == (False, True, False)
