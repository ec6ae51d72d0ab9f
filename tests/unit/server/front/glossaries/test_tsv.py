"""Glossaries of tab-separated values."""

from __future__ import annotations

import pytest

from seqserve_server.front.glossaries.glossary import GlossaryError
from seqserve_server.front.glossaries.tsv import entries_of


def read(text: str) -> list[tuple[str, str]]:
    return [(entry.source, entry.target) for entry in entries_of(text.encode())]


def test_lines_are_entries() -> None:
    text = "\ufeff# products\n\ntea\tTee\r\n hot cake \t Kuchen\ntea\tTee\n #tag\t#Etikett"
    assert read(text) == [("tea", "Tee"), ("hot cake", "Kuchen"), ("#tag", "#Etikett")]
    assert read("") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tea\tTee\ncake", "line 2: has 1 columns"),
        ("a\tb\tc", "line 1: has 3 columns"),
        ("tea\t ", "line 1: its target is empty"),
        ("\tTee", "line 1: its source is empty"),
        ("a\tb\na\tc", "line 2: 'a' has another target"),
        ("a\t" + "b" * 257, "line 1: its target has 257 characters"),
    ],
)
def test_what_is_no_entry_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(GlossaryError, match=reason):
        read(text)


def test_other_encodings_are_refused() -> None:
    with pytest.raises(GlossaryError, match="line 2: is not UTF-8"):
        entries_of("a\tb\nc\tä".encode("latin-1"))
