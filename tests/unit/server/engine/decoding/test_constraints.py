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


SEQUENCES = {"suppressed": ((6,), (1, 2, 3), (2, 4))}
AT_THE_BEGIN = {"suppressed": ((BEGIN, 6), (BEGIN, 7, 8))}
AFTER_ANY = {"suppressed": ((ANY_TOKEN, 6),)}
MANY_REASONS = {"no_repeat_ngram_size": 1, "suppressed": ((EOS,), (3,), (3, 3))}


@pytest.mark.parametrize(
    ("options", "output", "suppressed"),
    [
        ({"stops": ("a",), "end_ids": (5,), "prefix": (1, 2)}, [1, 2, 3], []),
        ({"min_decoding_length": 2}, [], [EOS]),
        ({"min_decoding_length": 2}, [5], [EOS]),
        ({"min_decoding_length": 2}, [5, 5], []),
        ({"min_decoding_length": 2, "end_ids": (7, 4)}, [5], [4, 7]),
        (AFTER_ANY, [], []),
        (AFTER_ANY, [5], [6]),
        (AFTER_ANY, [5, 4], [6]),
        (AT_THE_BEGIN, [], [6]),
        (AT_THE_BEGIN, [5], []),
        (AT_THE_BEGIN, [7], [8]),
        (AT_THE_BEGIN, [5, 7], []),
        (SEQUENCES, [], [6]),
        (SEQUENCES, [2], [4, 6]),
        (SEQUENCES, [1, 2], [3, 4, 6]),
        (SEQUENCES, [1, 2, 5], [6]),
        (SEQUENCES, [5, 5, 1, 2], [3, 4, 6]),
        # Each is listed once.
        (MANY_REASONS | {"min_decoding_length": 5}, [3, 4], [EOS, 3, 4]),
    ],
    ids=str,
)
def test_suppressed_tokens(
    options: dict[str, Any], output: list[int], suppressed: list[int]
) -> None:
    assert constraints(**options).suppressed(output) == suppressed


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


TWO_ENDS = {"end_ids": (4, 5)}
AFTER_A_PREFIX = {"prefix": (1, 2), "stops": ("bc", "bbccc")}


@pytest.mark.parametrize(
    ("options", "output", "end"),
    [
        # The end token does not count.
        ({}, [1, 2, EOS], End(StopReason.EOS, 2)),
        ({}, [EOS], End(StopReason.EOS, 0)),
        ({}, [1, 2], None),
        # Those of a request replace that of the model.
        (TWO_ENDS, [1, 5], End(StopReason.EOS, 1)),
        (TWO_ENDS, [1, 4], End(StopReason.EOS, 1)),
        (TWO_ENDS, [1, EOS], None),
        ({"max_decoding_length": 3}, [1, 2], None),
        ({"max_decoding_length": 3}, [1, 2, 3], End(StopReason.LENGTH, 3)),
        ({"max_decoding_length": 3}, [1, 2, EOS], End(StopReason.EOS, 2)),
        # The texts of tokens 1, 2, 3, 4 are a, bb, ccc, dddd.
        ({"stops": ("ca",)}, [1, 3, 1], End(StopReason.STOP_SEQUENCE, 2, 3)),
        ({"stops": ("abbccc",)}, [1, 2, 3], End(StopReason.STOP_SEQUENCE, 0, 0)),
        ({"stops": ("bb",), "max_decoding_length": 2}, [1, 2], End(StopReason.STOP_SEQUENCE, 1, 1)),
        ({"stops": ("bb",), "max_decoding_length": 2}, [1, 3], End(StopReason.LENGTH, 2)),
        # One that begins in the forced prefix does not count, in a preferred prefix it does.
        (AFTER_A_PREFIX, [1, 2], None),
        (AFTER_A_PREFIX, [1, 2, 3], None),
        (AFTER_A_PREFIX, [1, 2, 3, 2, 3], End(StopReason.STOP_SEQUENCE, 3, 6)),
        (
            AFTER_A_PREFIX | {"prefix_bias_beta": 0.5},
            [1, 2, 3],
            End(StopReason.STOP_SEQUENCE, 1, 1),
        ),
    ],
    ids=str,
)
def test_what_ends_a_hypothesis(
    options: dict[str, Any], output: list[int], end: End | None
) -> None:
    assert constraints(**options).end(output) == end


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
