from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import EOS, VOCABULARY_SIZE, make_options, text_of
from tokenizers import decoders, models

from seqserve_server.contract.events import StopReason
from seqserve_server.contract.options import ANY_TOKEN, BEGIN, DecodingOptions
from seqserve_server.engine.decoding.constraints import Constraints, End


def constraints(**options: Any) -> Constraints:
    made = make_options(**options)
    return Constraints(made, EOS, made.vocabulary or range(VOCABULARY_SIZE), text_of)


def test_no_token_is_suppressed_by_default() -> None:
    free = constraints(stops=("a",), end_ids=(5,), prefix=(1, 2), repetition_penalty=2.0)
    assert free.suppressed([1, 2, 3]) == []


@pytest.mark.parametrize(("length", "suppressed"), [(0, [EOS]), (1, [EOS]), (2, []), (3, [])])
def test_the_end_token_is_suppressed_below_the_minimum_length(
    length: int, suppressed: list[int]
) -> None:
    assert constraints(min_decoding_length=2).suppressed([5] * length) == suppressed


def test_all_end_tokens_are_suppressed_below_the_minimum_length() -> None:
    assert constraints(min_decoding_length=2, end_ids=(7, 4)).suppressed([5]) == [4, 7]


def test_a_token_may_be_suppressed_after_any_other() -> None:
    some = constraints(suppressed=((ANY_TOKEN, 6),))
    assert (some.suppressed([]), some.suppressed([5]), some.suppressed([5, 4])) == ([], [6], [6])


def test_tokens_may_be_suppressed_at_the_beginning() -> None:
    some = constraints(suppressed=((BEGIN, 6), (BEGIN, 7, 8)))
    assert (some.suppressed([]), some.suppressed([5]), some.suppressed([7])) == ([6], [], [8])
    assert some.suppressed([5, 7]) == []


def test_the_last_token_of_a_suppressed_sequence_is_suppressed_after_the_others() -> None:
    some = constraints(suppressed=((6,), (1, 2, 3), (2, 4)))
    assert some.suppressed([]) == [6]
    assert some.suppressed([2]) == [4, 6]
    assert some.suppressed([1, 2]) == [3, 4, 6]
    assert some.suppressed([1, 2, 5]) == [6]
    assert some.suppressed([5, 5, 1, 2]) == [3, 4, 6]


def test_a_token_suppressed_for_many_reasons_is_listed_once() -> None:
    many = constraints(
        min_decoding_length=5, no_repeat_ngram_size=1, suppressed=((EOS,), (3,), (3, 3))
    )
    assert many.suppressed([3, 4]) == [EOS, 3, 4]


@pytest.mark.parametrize(
    ("size", "suppressed"),
    [(1, [1, 2, 3]), (2, [1, 3]), (3, [1, 3]), (4, [3]), (5, [3]), (6, []), (20, [])],
)
def test_an_ngram_is_not_generated_twice(size: int, suppressed: list[int]) -> None:
    some = constraints(no_repeat_ngram_size=size)
    assert some.suppressed([1, 2, 1, 2, 3, 1, 2, 1, 2]) == suppressed


def constraints_that_leave(*left: int, **options: Any) -> Constraints:
    """Suppresses all other tokens, and those that were generated."""
    others = tuple((token,) for token in range(VOCABULARY_SIZE) if token not in left)
    return constraints(suppressed=others, no_repeat_ngram_size=1, **options)


def left_after(some: Constraints, *output: int) -> set[int]:
    return set(range(VOCABULARY_SIZE)).difference(some.suppressed(list(output)))


@pytest.mark.parametrize("min_length", [0, 2, 9])
def test_an_end_token_is_left_where_all_other_tokens_are_suppressed(min_length: int) -> None:
    """Below the minimum length too, and even where the end token itself is suppressed."""
    end = {EOS} if min_length == 0 else set()
    options: dict[str, Any] = {"min_decoding_length": min_length}
    assert left_after(constraints_that_leave(EOS, 1, 2, **options), 1) == {2} | end
    assert left_after(constraints_that_leave(EOS, 1, 2, **options), 1, 2) == {EOS}
    assert left_after(constraints_that_leave(1, 2, **options), 1, 2) == {EOS}
    assert left_after(constraints_that_leave(**options)) == {EOS}
    allowed = constraints(vocabulary=(EOS, 1, 2), no_repeat_ngram_size=1, **options)
    assert set(allowed.suppressed([1])) == {1} | ({EOS} - end)
    assert allowed.suppressed([1, 2]) == [1, 2]


def test_an_end_token_that_only_the_minimum_length_suppresses_is_left_first() -> None:
    some = constraints_that_leave(1, 2, 3, end_ids=(2, 3), min_decoding_length=9)
    assert left_after(some, 1, 3) == {2}
    assert left_after(some, 1, 3, 2) == {2, 3}


@given(size=st.integers(1, 4), tokens=st.lists(st.integers(1, 3), max_size=30))
def test_exactly_the_tokens_that_repeat_an_ngram_are_suppressed(
    size: int, tokens: list[int]
) -> None:
    some = constraints(no_repeat_ngram_size=size)
    output: list[int] = []
    for next_token in tokens:
        suppressed = some.suppressed(output)
        ngrams = [tuple(output[begin : begin + size]) for begin in range(len(output) - size + 1)]
        for token in (1, 2, 3):
            last = tuple([*output, token][-size:])
            assert (token in suppressed) == (len(last) == size and last in ngrams)
        if next_token not in suppressed:
            output.append(next_token)


def test_a_stop_sequence_that_begins_in_the_forced_prefix_does_not_end_a_hypothesis() -> None:
    some = constraints(prefix=(1, 2), stops=("bc", "bbccc"))
    assert some.end([1, 2]) is None
    assert some.end([1, 2, 3]) is None
    assert some.end([1, 2, 3, 2, 3]) == End(StopReason.STOP_SEQUENCE, 3, 6)
    preferred = constraints(prefix=(1, 2), stops=("bc",), prefix_bias_beta=0.5)
    assert preferred.end([1, 2, 3]) == End(StopReason.STOP_SEQUENCE, 2, 2)


def test_the_tokens_of_the_prefix_are_forced_in_order() -> None:
    some = constraints(prefix=(4, 5))
    assert [some.forced(length) for length in range(4)] == [4, 5, None, None]
    assert constraints().forced(0) is None


def test_a_preferred_prefix_forces_no_token() -> None:
    some = constraints(prefix=(4, 5), prefix_bias_beta=0.1)
    assert [some.forced(length) for length in range(3)] == [None, None, None]


def test_an_end_token_ends_a_hypothesis_and_does_not_count() -> None:
    assert constraints().end([1, 2, EOS]) == End(StopReason.EOS, 2)
    assert constraints().end([EOS]) == End(StopReason.EOS, 0)
    assert constraints().end([1, 2]) is None


def test_end_tokens_of_a_request_replace_that_of_the_model() -> None:
    some = constraints(end_ids=(4, 5))
    assert some.end([1, 5]) == some.end([1, 4]) == End(StopReason.EOS, 1)
    assert some.end([1, EOS]) is None
    assert (some.end_ids, constraints().end_ids) == ({4, 5}, {EOS})


def test_the_maximum_length_ends_a_hypothesis_with_all_its_tokens() -> None:
    some = constraints(max_decoding_length=3)
    assert some.end([1, 2]) is None
    assert some.end([1, 2, 3]) == End(StopReason.LENGTH, 3)
    assert some.end([1, 2, EOS]) == End(StopReason.EOS, 2)


@pytest.mark.parametrize(
    ("stops", "output", "end"),
    [
        # The texts of tokens 1, 2, 3, 4 are a, bb, ccc, dddd.
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
def test_a_stop_sequence_ends_a_hypothesis_wherever_it_begins(
    stops: tuple[str, ...], output: list[int], end: End | None
) -> None:
    assert constraints(stops=stops).end(output) == end


def test_a_stop_sequence_at_the_maximum_length_is_reported_as_a_stop() -> None:
    some = constraints(stops=("bb",), max_decoding_length=2)
    assert some.end([1, 2]) == End(StopReason.STOP_SEQUENCE, 1, 1)
    assert some.end([1, 3]) == End(StopReason.LENGTH, 2)


@given(
    output=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    stops=st.lists(st.text("abcd", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_the_tokens_that_count_cover_the_text_before_the_stop_sequence(
    output: list[int], stops: list[str]
) -> None:
    end = constraints(stops=tuple(stops)).end(output)
    text = text_of(output)
    if end is None:
        assert not any(stop in text for stop in stops)
        return
    assert end.reason is StopReason.STOP_SEQUENCE
    assert end.text_length is not None
    before = text[: end.text_length]
    assert any(text.startswith(before + stop) for stop in stops)
    # It is the first: no stop sequence is complete before its last letter.
    assert not any(stop in text[: end.text_length + len(stop) - 1] for stop in stops)
    assert text_of(output[: end.length]).startswith(before)
    assert end.length == 0 or len(text_of(output[: end.length - 1])) < len(before)


def test_the_tokens_that_count_give_the_text_even_where_tokens_are_bytes() -> None:
    """Two bytes of a euro sign are two replacement characters, as long as two euro signs."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    raw = tokenizers.Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    raw.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    output = [1 + byte for byte in "€€!".encode()]
    options = DecodingOptions(max_decoding_length=20, stops=("!",))
    end = Constraints(options, 0, range(len(tokens)), raw.decode).end(output)
    assert end is not None
    assert raw.decode(output[: end.length])[: end.text_length] == "€€"
