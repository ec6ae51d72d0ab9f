"""A text that grows takes as much more time; in quadratic time these would take minutes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from seqserve.documents.formats import Format

from .marking import CUE, passages_of

SIZE = 60_000
PLACES = {
    Format.MARKDOWN: ["{}", "> {}", "| {} |\n|-|\n", "    {}"],
    Format.JSON: ['{{"k": "{}"}}'],
    Format.STRINGS: ['"k" = "{}";'],
    Format.PO: ['msgid "{}"\nmsgstr ""\n'],
    Format.CSV: ['text\n"{}"\n'],
    Format.SRT: [CUE + "{}\n"],
    Format.HTML: ["<p>{}"],
    Format.TEXT: ["{}"],
}
UNITS = [
    "0",
    "<!--",
    "[",
    "![",
    "](",
    "[a](",
    "*a ",
    "**a_",
    "_*",
    "{{",
    "{%",
    "{",
    "$",
    "<A b",
    "[[a|",
]
UNITS += [
    "&#",
    "\\",
    "http://a(",
    "a@",
    ":a",
    "++a",
    "<?",
    "%(",
    "%1",
    "$t(",
    "'{",
    "''{",
    "{a,plural,",
]
UNITS += [
    "<b>x",
    "</b>x",
    "> ",
    "- ",
    "``a`",
    "<a b='",
    "<code>",
    "<kbd>x</b>",
    "[^a",
    "!!! a\n",
    "::: a\n",
]
UNITS += [
    "=== a\n    ",
    "[a]: b\n",
    "a  \n",
    "  ",
    "\n",
    "a|",
    "*[a]:",
    "<p>\n\n",
    "{#",
    "\\N",
    '"',
]
WRITTEN: dict[Format, Callable[[str], str]] = {
    Format.JSON: lambda text: json.dumps(text)[1:-1],
    Format.STRINGS: lambda text: json.dumps(text)[1:-1],
    Format.PO: lambda text: json.dumps(text)[1:-1],
    Format.CSV: lambda text: text.replace('"', '""'),
}


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["a %{}", *UNITS])
@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.value)
def test_a_text_is_read_in_one_pass(kind: Format, unit: str) -> None:
    text = "a %" + "0" * SIZE if unit == "a %{}" else unit * (SIZE // len(unit))
    for place in PLACES[kind]:
        document = place.format(WRITTEN.get(kind, str)(text))
        passages = passages_of(kind, document)
        assert "".join(each.before + each.source for each in passages) == document


@pytest.mark.slow
def test_runs_of_backticks_that_grow_are_read_in_one_pass() -> None:
    document = " ".join("`" * length for length in range(1, 800))
    passages = passages_of(Format.MARKDOWN, document)
    assert "".join(each.before + each.source for each in passages) == document
