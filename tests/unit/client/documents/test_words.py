"""What has no letter is not translated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format

from .marking import ANY_TEXT, CUE, marked

WORDLESS = ["102", "2024-05-17", "$5.99", "♪ ♪", "...", "-----", ", ", "\u2163", "😀", "3 × 4 = 12"]
PLACES = [
    (Format.TEXT, "{}\n"),
    (Format.HTML, "<td>{}</td>"),
    (Format.HTML, "<p><code>a</code>{}<code>b</code></p>"),
    (Format.HTML, "<p>{}<b>{}</b> </p>"),
    (Format.MARKDOWN, "# {}\n"),
    (Format.MARKDOWN, "> 1\n> 2 {}\n"),
    (Format.SRT, CUE + "{}\r\n<i>{}</i>\r\n"),
    (Format.VTT, "WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n"),
    (Format.JSON_LINES, '{{"text": "{}", "\\u0061": 1}}\n'),
]


@pytest.mark.parametrize("text", WORDLESS)
@pytest.mark.parametrize(("kind", "place"), PLACES)
def test_a_passage_without_a_letter_stays_to_the_byte(kind: Format, place: str, text: str) -> None:
    document = place.format(text, text)
    assert marked(kind, document) == document


@given(st.text(st.characters(exclude_categories=["L", "C", "Z"]) | st.sampled_from(" \n\r\t<>&|*")))
def test_any_document_without_a_letter_stays_to_the_byte(text: str) -> None:
    for kind in ANY_TEXT:
        assert marked(kind, text) == text, kind
