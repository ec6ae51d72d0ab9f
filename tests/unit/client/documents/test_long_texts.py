"""A text that is too long for one call is sent in parts, in every format."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format
from seqserve.documents.passage import fits, parts

from .marking import CUE, passages_of

SENTENCES = "I. " * 3000


@pytest.mark.parametrize(
    "text", ["word " * 50_000, SENTENCES, "a" * 250_000, "はい。" * 3000, "A...... " * 20_000]
)
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (Format.TEXT, "{}\n"),
        (Format.HTML, "<p>{}</p>"),
        (Format.HTML, "<p><b>a</b> {}</p>"),
        (Format.MARKDOWN, "> 1\n> 2 {}\n"),
        (Format.SRT, CUE + "{}\r\n"),
        (Format.JSON_LINES, '{{"text": "{}", "\\u0061": 1}}\n'),
    ],
)
def test_a_long_text_is_sent_in_parts(kind: Format, place: str, text: str) -> None:
    document = place.format(text)
    passages = passages_of(kind, document)
    parts = [each.text for each in passages if each.has_words]
    assert len(parts) > 1
    assert max(map(len, parts)) <= 100_000
    # The server takes 4,096 segments.
    assert max(len(re.findall(r"[.。]+", part)) for part in parts) < 4096
    joined = "".join(each.before + each.source for each in passages)
    # Lines of a paragraph of Markdown become one.
    assert joined == (document.replace("\n> 2", " 2") if kind is Format.MARKDOWN else document)


def test_parts_of_a_text_end_after_sentences_or_words() -> None:
    assert {part.rstrip()[-1] for part in parts(SENTENCES)} == {"."}
    assert {part[-1] for part in parts("word " * 50_000 + "word")} == {"d"}
    assert {part[-1] for part in parts("はい。" * 3000)} == {"。"}


@given(
    st.lists(st.sampled_from(["a. ", "b", " ", "…", "\u2028", "é", "!" * 50])), st.integers(1, 999)
)
def test_parts_are_the_text(words: list[str], times: int) -> None:
    text = "".join(words) * times
    divided = parts(text)
    assert "".join(divided) == text
    assert all(map(fits, divided))


@pytest.mark.parametrize(
    "text", ['"a \\u00e4\\n\\ud83d\\ude00 \\"b\\" "', '"é \\ud83d x\\/ "', '"a\\\\ud83d\\ude00 "']
)
def test_escapes_of_a_long_text_in_json_are_kept(text: str) -> None:
    long = f'"{text[1:-1] * 20_000}"'
    line = f'{{"text": {long}, "n": 1}}'
    passages = passages_of(Format.JSON_LINES, line)
    assert "".join(each.before + each.source for each in passages) == line
    kept = [each for each in passages if each.has_words]
    assert len(kept) > 1
    assert all(json.loads(f'"{each.source}"') == each.text for each in kept)
