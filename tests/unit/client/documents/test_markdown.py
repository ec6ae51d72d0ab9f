"""Text of Markdown and its escapes: what a translation says is what its reader sees."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.support.capitals import capitals

from seqserve.documents.markdown import parse
from seqserve.documents.passage import Translation

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def upper(markdown: str) -> str:
    return "".join(
        each.before + (each.written(capitals(each)) if each.has_words else each.source)
        for each in parse(markdown.splitlines(keepends=True))
    )


def written(markdown: str, text: str, translation: str) -> str:
    """The document with this text translated; others stay."""
    passages = list(parse(markdown.splitlines(keepends=True)))
    assert text in [each.text for each in passages]
    return "".join(
        each.before + (each.written(Translation(translation)) if each.text == text else each.source)
        for each in passages
    )


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        # Escapes and references are characters of the text, and what needs it is escaped again.
        (r"\*stars\* cost 2 \* 3", r"\*STARS\* COST 2 * 3"),
        ("AT&amp;T &lt;b&gt; &copy; &amp;lt;", r"AT&T \<B> © \&LT;"),
        (r"a snake\_case 5\$ \#1\.", r"A SNAKE_CASE 5\$ \#1."),
        # Footnotes, of which each begins a line.
        ("a[^1] b\n\n[^1]: one\nmore\n[^b]: two\n", "A[^1] B\n\n[^1]: ONE MORE\n[^b]: TWO\n"),
        # Cells with bars.
        (
            "| a \\| b | `c\\|d` |\n|---|---|\n| e | f\\|g |\n",
            "| A \\| B | `c\\|d` |\n|---|---|\n| E | F\\|G |\n",
        ),
        # Addresses.
        (
            "see https://x.y/a_b?c=d&amp;e (www.x.y). **http://x.y/(z)**, c",
            "SEE https://x.y/a_b?c=d&amp;e (www.x.y). **http://x.y/(z)**, C",
        ),
        ("to ann.lee+b@mail.x.org, or @bob", "TO ann.lee+b@mail.x.org, OR @BOB"),
    ],
)
def test_what_is_read_and_written(markdown: str, expected: str) -> None:
    assert upper(markdown) == expected


@pytest.mark.parametrize(
    ("markdown", "text", "translation", "expected"),
    [
        ("a", "a", "1. b", "1\\. b"),
        ("- a\n", "a", "- b", "- \\- b\n"),
        ("- a\n", "a", "# b", "- \\# b\n"),
        ("a\n===\n", "a", "> b", "\\> b\n===\n"),
        ("# 1. a\n", "1. a", "1. b", "# 1. b\n"),
        ("[^1] a\n", "a", "- b", "[^1] - b\n"),
        ("|a|\n|-|\n", "a", "b|c", "|b\\|c|\n|-|\n"),
        ("a", "a", "-5 + 3 = 1.5, ~2 * 3 & 4 < 5!", "-5 + 3 = 1.5, ~2 * 3 & 4 < 5!"),
        ("a", "a", "__b__ and snake_case", "\\_\\_b\\_\\_ and snake_case"),
        ("a", "a", "*b* _c_ `d` [e](f) <g> &amp; ~~h~~", None),
    ],
)
def test_a_translation_changes_no_structure(
    markdown: str, text: str, translation: str, expected: str | None
) -> None:
    found = written(markdown, text, translation)
    assert found == expected or (expected is None and shown(found) == [("paragraph", translation)])


def shown(markdown: str) -> list[tuple[str, str]]:
    """The texts of a document as its reader sees them, each with its kind of block."""
    tokens = READER.parse(markdown)
    found = []
    for parent, token in pairwise(tokens):
        if token.type == "inline":
            assert token.children is not None
            assert {each.type for each in token.children} <= {"text", "text_special"}
            text = "".join(each.content for each in token.children)
            found.append((parent.type.removesuffix("_open"), text))
    return found


WORDS = ["b", "1.", "2)", "#", "##", "-", "+", "*", "_", "**", "~~", "~~~", "`", "```", ">", "=="]
WORDS += ["|", "[c]", "[^1]:", "](d)", "![", "<e>", "</e>", "&amp;", "&#65;", "\\", "\\*", "a*b*"]
WORDS += ["_f_", "---", "***", ":", "[ ]", "!"]


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5), st.booleans())
@example(words=["_", "_", "b", "_", "_"], is_apart=False)
@settings(max_examples=300)
def test_the_reader_sees_the_translation(words: list[str], is_apart: bool) -> None:
    translation = (" " if is_apart else "").join(["x", *words])[2 if is_apart else 1 :]
    for before, behind, kind in (
        ("", "\n", "paragraph"),
        ("- ", "\n", "paragraph"),
        ("> 1. ", "\n", "paragraph"),
        ("", "\n===\n", "heading"),
        ("## ", " ##\n", "heading"),
        ("| ", " |\n|---|\n", "th"),
    ):
        found = written(f"{before}word{behind}", "word", translation)
        assert shown(found) == [(kind, translation)], found
