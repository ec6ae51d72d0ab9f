from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from seqserve_server.engine.constraints import End
from seqserve_server.engine.path import Path
from seqserve_server.engine.request import DecodingOptions, Hypothesis, StopReason

RANKING = [(5, -0.5), (6, -1.0)]
EVERYTHING: dict[str, Any] = {"return_token_scores": True, "return_top_tokens": 2}


def options(**changes: Any) -> DecodingOptions:
    return DecodingOptions(max_decoding_length=9, **changes)


def walked(*words: int, prefix: tuple[int, ...] = ()) -> Path:
    """Says a prefix, then words of which the log-probability is -word."""
    path = Path()
    for word in prefix:
        path = path.forced(word)
    for word in words:
        path = path.extended(word, -float(word), [(word, -float(word))])
    return path


def whole(path: Path) -> Hypothesis:
    """Tells everything of a path that has come to its longest length."""
    return path.finished(End(StopReason.LENGTH, path.length), options(**EVERYTHING))


def test_path_begins_with_nothing() -> None:
    assert (Path().words(), Path().length, Path().score) == ([], 0, 0.0)


def test_words_and_scores_add_up() -> None:
    path = Path().extended(5, -0.5, RANKING).extended(6, -0.25, RANKING[:1])
    assert (path.words(), path.word, path.length, path.score) == ([5, 6], 6, 2, -0.75)
    found = whole(path)
    assert (found.token_scores, found.top_tokens) == ([-0.5, -0.25], [RANKING, RANKING[:1]])


def test_prefix_has_words_but_no_scores() -> None:
    path = walked(3, prefix=(7, 8))
    assert (path.words(), path.length, path.score) == ([7, 8, 3], 3, -3.0)
    found = whole(path)
    assert found.token_scores == pytest.approx([math.nan, math.nan, -3.0], nan_ok=True)
    assert found.top_tokens == [[], [], [(3, -3.0)]]


def test_path_never_changes() -> None:
    """Two beams may go on from the same one."""
    path = walked(1)
    one, other = path.extended(2, -2.0, RANKING), path.forced(3)
    assert (path.words(), path.score) == ([1], -1.0)
    assert (one.words(), other.words()) == ([1, 2], [1, 3])
    assert whole(path).top_tokens == [[(1, -1.0)]]
    with pytest.raises(dataclasses.FrozenInstanceError):
        path.score = 0.0  # type: ignore[misc]


def test_nothing_is_listed_that_is_not_known() -> None:
    assert whole(Path().extended(5, -0.5)).top_tokens == [[]]


def test_end_token_is_no_word_of_the_answer_but_its_score_is_told() -> None:
    found = walked(4, 5, 2).finished(End(StopReason.EOS, 2), options(**EVERYTHING))
    assert found.token_ids == [4, 5]
    assert found.score == -11.0
    assert found.normalized_score == pytest.approx(-11 / 3)
    assert found.token_scores == [-4.0, -5.0, -2.0]
    assert found.top_tokens == [[(4, -4.0)], [(5, -5.0)], [(2, -2.0)]]
    assert (found.stop_reason, found.text_length) == (StopReason.EOS, None)


def test_longest_length_keeps_every_word() -> None:
    found = walked(4, 5).finished(End(StopReason.LENGTH, 2), options(**EVERYTHING))
    assert (found.token_ids, found.token_scores) == ([4, 5], [-4.0, -5.0])
    assert found.normalized_score == pytest.approx(-9 / 2)


def test_what_comes_after_a_text_is_not_told_of() -> None:
    end = End(StopReason.STOP_SEQUENCE, 1, 7)
    found = walked(4, 5, 6).finished(end, options(**EVERYTHING))
    assert found.token_ids == [4]
    assert (found.token_scores, found.top_tokens) == ([-4.0], [[(4, -4.0)]])
    assert found.text_length == 7


def test_text_may_begin_within_the_prefix() -> None:
    end = End(StopReason.STOP_SEQUENCE, 1, 2)
    found = walked(4, 5, prefix=(7, 8)).finished(end, options(**EVERYTHING))
    assert found.token_ids == [7]
    assert found.token_scores == pytest.approx([math.nan], nan_ok=True)
    assert found.top_tokens == [[]]


def test_prefix_has_its_places_among_what_is_told() -> None:
    found = walked(4, 2, prefix=(7, 8)).finished(End(StopReason.EOS, 3), options(**EVERYTHING))
    assert found.token_ids == [7, 8, 4]
    assert found.token_scores == pytest.approx([math.nan, math.nan, -4, -2], nan_ok=True)
    assert found.top_tokens == [[], [], [(4, -4.0)], [(2, -2.0)]]
    assert found.normalized_score == pytest.approx(-6 / 4)


def test_only_what_is_asked_for_is_told() -> None:
    end = End(StopReason.EOS, 1)
    plain = walked(4, 2).finished(end, options())
    assert (plain.score, plain.token_scores, plain.top_tokens) == (-6.0, (), ())
    silent = walked(4, 2).finished(end, options(return_scores=False, return_token_scores=True))
    assert (silent.score, silent.normalized_score) == (None, None)
    assert silent.token_scores == [-4.0, -2.0]


@pytest.mark.parametrize(("penalty", "rank"), [(0.0, -6.0), (1.0, -2.0), (2.0, -6 / 9)])
def test_rank_is_the_score_by_the_length(penalty: float, rank: float) -> None:
    assert walked(3, 1, 2).rank(penalty) == pytest.approx(rank)
    assert walked(4, 2, prefix=(9,)).rank(penalty) == pytest.approx(rank)
