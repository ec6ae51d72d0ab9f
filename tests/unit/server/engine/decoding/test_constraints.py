from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import EOS, WORDS, spelt

from seqserve_server.contract.events import StopReason
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.decoding.constraints import Constraints, End

LONGEST = 9


def constraints(**options: Any) -> Constraints:
    longest = options.pop("max_decoding_length", LONGEST)
    given = DecodingOptions(max_decoding_length=longest, **options)
    return Constraints(given, EOS, WORDS, spelt)


def test_nothing_is_forbidden_unless_asked_for() -> None:
    free = constraints(stops=("a",), end_ids=(5,), prefix=(1, 2), repetition_penalty=2.0)
    assert free.suppressed([1, 2, 3]) == []


@pytest.mark.parametrize(("count", "banned"), [(0, [EOS]), (1, [EOS]), (2, []), (3, [])])
def test_end_token_is_forbidden_before_the_shortest_length(count: int, banned: list[int]) -> None:
    assert constraints(min_decoding_length=2).suppressed([5] * count) == banned


def test_all_end_tokens_are_forbidden_before_the_shortest_length() -> None:
    assert constraints(min_decoding_length=2, end_ids=(7, 4)).suppressed([5]) == [4, 7]


def test_last_word_of_a_sequence_is_forbidden_after_the_others() -> None:
    some = constraints(suppressed=((6,), (1, 2, 3), (2, 4)))
    assert some.suppressed([]) == [6]
    assert some.suppressed([2]) == [4, 6]
    assert some.suppressed([1, 2]) == [3, 4, 6]
    assert some.suppressed([1, 2, 5]) == [6]
    assert some.suppressed([5, 5, 1, 2]) == [3, 4, 6]


def test_word_forbidden_for_many_reasons_is_listed_once() -> None:
    many = constraints(
        min_decoding_length=5, no_repeat_ngram_size=1, suppressed=((EOS,), (3,), (3, 3))
    )
    assert many.suppressed([3, 4]) == [EOS, 3, 4]


@pytest.mark.parametrize(
    ("size", "banned"),
    [(1, [1, 2, 3]), (2, [1, 3]), (3, [1, 3]), (4, [3]), (5, [3]), (6, []), (20, [])],
)
def test_sequence_is_not_said_twice(size: int, banned: list[int]) -> None:
    assert constraints(no_repeat_ngram_size=size).suppressed([1, 2, 1, 2, 3, 1, 2, 1, 2]) == banned


def few(*free: int, **options: Any) -> Constraints:
    """Suppresses all words but some."""
    others = tuple((word,) for word in range(WORDS) if word not in free)
    return constraints(suppressed=others, no_repeat_ngram_size=1, **options)


def free_after(some: Constraints, *words: int) -> set[int]:
    return set(range(WORDS)).difference(some.suppressed(list(words)))


@pytest.mark.parametrize("shortest", [0, 2, 9])
def test_only_an_end_is_left_where_all_else_is_forbidden(shortest: int) -> None:
    """However short it is, and even where the end is forbidden too."""
    free = {EOS} if shortest == 0 else set()
    options: dict[str, Any] = {"min_decoding_length": shortest}
    assert free_after(few(EOS, 1, 2, **options), 1) == {2} | free
    assert free_after(few(EOS, 1, 2, **options), 1, 2) == {EOS}
    assert free_after(few(1, 2, **options), 1, 2) == {EOS}
    assert free_after(few(**options)) == {EOS}


@pytest.mark.parametrize("shortest", [0, 2, 9])
def test_only_an_end_is_left_of_a_vocabulary(shortest: int) -> None:
    some = constraints(vocabulary=(EOS, 1, 2), no_repeat_ngram_size=1, min_decoding_length=shortest)
    banned = set() if shortest == 0 else {EOS}
    assert set(some.suppressed([1])) == {1} | banned
    assert some.suppressed([1, 2]) == [1, 2]


def test_end_that_nothing_else_forbids_comes_before_one_that_is_forbidden() -> None:
    some = few(1, 2, 3, end_ids=(2, 3), min_decoding_length=9)
    assert free_after(some, 1, 3) == {2}
    assert free_after(some, 1, 3, 2) == {2, 3}


@given(size=st.integers(1, 4), wishes=st.lists(st.integers(1, 3), max_size=30))
def test_what_heeds_the_bans_repeats_nothing(size: int, wishes: list[int]) -> None:
    some = constraints(no_repeat_ngram_size=size)
    words: list[int] = []
    for wish in wishes:
        banned = some.suppressed(words)
        parts = [tuple(words[place : place + size]) for place in range(len(words) - size + 1)]
        for word in (1, 2, 3):
            last = tuple([*words, word][-size:])
            assert (word in banned) == (len(last) == size and last in parts)
        if wish not in banned:
            words.append(wish)


def test_no_stop_sequence_cuts_the_prefix() -> None:
    """One that begins within it is none; one that comes after it is."""
    some = constraints(prefix=(1, 2), stops=("bc", "bbccc"))
    assert some.end([1, 2]) is None
    assert some.end([1, 2, 3]) is None
    assert some.end([1, 2, 3, 2, 3]) == End(StopReason.STOP_SEQUENCE, 3, 6)
    preferred = constraints(prefix=(1, 2), stops=("bc",), prefix_bias_beta=0.5)
    assert preferred.end([1, 2, 3]) == End(StopReason.STOP_SEQUENCE, 2, 2)


def test_words_of_the_prefix_are_forced_in_their_order() -> None:
    some = constraints(prefix=(4, 5))
    assert [some.forced(length) for length in range(4)] == [4, 5, None, None]
    assert constraints().forced(0) is None


def test_prefix_that_is_only_preferred_forces_nothing() -> None:
    some = constraints(prefix=(4, 5), prefix_bias_beta=0.1)
    assert [some.forced(length) for length in range(3)] == [None, None, None]


def test_end_token_ends_a_hypothesis_and_is_no_part_of_it() -> None:
    assert constraints().end([1, 2, EOS]) == End(StopReason.EOS, 2)
    assert constraints().end([EOS]) == End(StopReason.EOS, 0)
    assert constraints().end([1, 2]) is None


def test_end_tokens_take_the_place_of_the_models_own() -> None:
    some = constraints(end_ids=(4, 5))
    assert some.end([1, 5]) == some.end([1, 4]) == End(StopReason.EOS, 1)
    assert some.end([1, EOS]) is None
    assert (some.end_ids, constraints().end_ids) == ({4, 5}, {EOS})


def test_longest_length_ends_a_hypothesis_with_all_its_words() -> None:
    some = constraints(max_decoding_length=3)
    assert some.end([1, 2]) is None
    assert some.end([1, 2, 3]) == End(StopReason.LENGTH, 3)
    assert some.end([1, 2, EOS]) == End(StopReason.EOS, 2)


@pytest.mark.parametrize(
    ("stops", "words", "end"),
    [
        # The text is a, bb, ccc, dddd for words 1, 2, 3, 4.
        (("bb",), [1, 2], End(StopReason.STOP_SEQUENCE, 1, 1)),
        (("b",), [1, 2], End(StopReason.STOP_SEQUENCE, 1, 1)),
        (("cb",), [3, 2], End(StopReason.STOP_SEQUENCE, 1, 2)),
        (("ca",), [1, 3, 1], End(StopReason.STOP_SEQUENCE, 2, 3)),
        (("abbccc",), [1, 2, 3], End(StopReason.STOP_SEQUENCE, 0, 0)),
        (("abbcccd",), [1, 2, 3], None),
        (("cc", "bc"), [2, 3], End(StopReason.STOP_SEQUENCE, 1, 1)),
        (("cc", "b"), [2, 3], End(StopReason.STOP_SEQUENCE, 0, 0)),
        (("e",), [1, 2, 3, 4], None),
        ((), [1, 2, 3, 4], None),
    ],
)
def test_text_ends_a_hypothesis_wherever_it_begins(
    stops: tuple[str, ...], words: list[int], end: End | None
) -> None:
    assert constraints(stops=stops).end(words) == end


def test_text_in_the_last_place_counts_as_a_stop() -> None:
    some = constraints(stops=("bb",), max_decoding_length=2)
    assert some.end([1, 2]) == End(StopReason.STOP_SEQUENCE, 1, 1)
    assert some.end([1, 3]) == End(StopReason.LENGTH, 2)


@given(
    words=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    stops=st.lists(st.text("abcd", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_words_that_are_kept_cover_what_comes_before_the_text(
    words: list[int], stops: list[str]
) -> None:
    end = constraints(stops=tuple(stops)).end(words)
    text = spelt(words)
    if end is None:
        assert not any(stop in text for stop in stops)
        return
    assert end.reason is StopReason.STOP_SEQUENCE
    assert end.text_length is not None
    before = text[: end.text_length]
    assert any(text.startswith(before + stop) for stop in stops)
    # No text is found before; up to its last letter, none is complete.
    assert not any(stop in text[: end.text_length + len(stop) - 1] for stop in stops)
    assert spelt(words[: end.length]).startswith(before)
    assert end.length == 0 or len(spelt(words[: end.length - 1])) < len(before)
