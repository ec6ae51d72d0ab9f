"""What is read in small letters, and answered in capitals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.generate.features.asking import asked

from seqserve.v1 import generation_pb2
from seqserve_server.front.generate.features.casing import (
    casing,
    is_all_caps,
    lowercased,
    uppercase,
)
from seqserve_server.front.generate.features.protected import protected_spans
from seqserve_server.front.generate.splitting import Span


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
    kept = protected_spans(text, (), True)
    assert (lowercased(text, kept) if is_all_caps(text, kept) else text) == read


@given(st.text(), st.integers(0, 5), st.integers(0, 5))
def test_each_character_keeps_its_place(text: str, begin: int, length: int) -> None:
    kept = [Span(begin, begin + length)] if begin + length <= len(text) else []
    small = lowercased(text, kept)
    assert len(small) == len(text)
    assert all(small[slice(*span)] == text[slice(*span)] for span in kept)


def test_what_a_target_begins_or_ends_with_has_its_letters() -> None:
    assert casing(asked(lower_capitals=True))
    assert not casing(asked())
    assert not casing(asked(lower_capitals=True, target_prefix="Wo"))
    assert not casing(asked(lower_capitals=True, stop_sequences=["."]))


def test_places_follow_letters_that_have_two_capitals() -> None:
    text = "die größte straße ist {name} bei a.example."
    kept = [generation_pb2.KeptText(text=each) for each in ("{name}", "a.example")]
    for each in kept:
        each.target_begin = text.index(each.text)
        each.target_end = each.target_begin + len(each.text)
    words = ["größte", "straße", "ist", "bei"]
    begins = [text.index(word) for word in words]
    ends = [begin + len(word) for begin, word in zip(begins, words, strict=True)]
    message = generation_pb2.Hypothesis(text=text, tokens=["die"], kept=kept)
    message.alignment.target_begins.extend(begins)
    message.alignment.target_ends.extend(ends)

    uppercase(message)

    assert message.text == "DIE GRÖSSTE STRASSE IST {name} BEI a.example."
    assert [message.text[each.target_begin : each.target_end] for each in message.kept] == [
        "{name}",
        "a.example",
    ]
    places = zip(message.alignment.target_begins, message.alignment.target_ends, strict=True)
    assert [message.text[begin:end] for begin, end in places] == [w.upper() for w in words]
    assert [*message.tokens] == ["die"]
