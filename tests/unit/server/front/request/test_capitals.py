"""What is read in small letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.v1 import generation_pb2
from seqserve_server.front.request.capitals import in_capitals, lowered, lowers_capitals
from seqserve_server.front.request.kept_spans import KeptTexts
from seqserve_server.front.request.splitting import Span

Options = generation_pb2.GenerationOptions
KEPT = KeptTexts(Options(keep_placeholders=True))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("WHERE IS THE STATION?", "where is the station?"),
        ("ÄRGER MIT ÖL!", "ärger mit öl!"),
        ("DEAR {Name}, SEE a.example.com/B NOW", "dear {Name}, see a.example.com/B now"),
        # A word alone, and letters alone, may be names.
        ("NASA", "NASA"),
        ("I AM", "I AM"),
        ("THE {name}", "THE {name}"),
        ("It says STOP HERE", "It says STOP HERE"),
        ("어디 있습니까 지금?", "어디 있습니까 지금?"),
        ("12 34", "12 34"),
        ("", ""),
    ],
)
def test_a_text_in_capitals_is_read_in_small_letters_but_for_what_it_keeps(
    text: str, read: str
) -> None:
    kept = KEPT.spans(text)
    assert (lowered(text, kept) if in_capitals(text, kept) else text) == read


@given(st.text(), st.integers(0, 5), st.integers(0, 5))
def test_each_character_keeps_its_place(text: str, begin: int, length: int) -> None:
    kept = [Span(begin, begin + length)] if begin + length <= len(text) else []
    small = lowered(text, kept)
    assert len(small) == len(text)
    assert all(small[slice(*span)] == text[slice(*span)] for span in kept)


def test_what_a_target_begins_or_ends_with_has_its_letters() -> None:
    assert lowers_capitals(Options(lower_capitals=True))
    assert not lowers_capitals(Options())
    assert not lowers_capitals(Options(lower_capitals=True, target_prefix="Wo"))
    assert not lowers_capitals(Options(lower_capitals=True, stop_sequences=["."]))
