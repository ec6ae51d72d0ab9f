import json
from functools import partial
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.capitals import capitals

from seqserve.documents.formats import Format

from .marking import CUE, in_capitals, passages_of, sent
from .test_office_parts import odf
from .test_office_parts import part as office_part

VALUE = '<data name="a"><value>{}</value></data>'
WORDS = st.sampled_from(["word", "Wörter", "12", "a-b", "can't", "漢字", "x"])


def mixed(*others: str) -> st.SearchStrategy[str]:
    """Texts of words and these."""
    return st.lists(WORDS | st.sampled_from(others), min_size=1, max_size=6).map(" ".join)


INLINE = st.recursive(
    mixed(
        "`code`", "![i](j)", "[^1]", "{{ x }}", "{.c}", "$a_1$", "<kbd>K</kbd>", "https://x.y/a_b"
    ),
    lambda inner: st.sampled_from(["*{}*", "**{}**", "[{}](u)", "[[p|{}]]", "<b>{}</b>"]).flatmap(
        lambda form: inner.map(form.format)
    ),
    max_leaves=4,
)
LINES = st.lists(INLINE, min_size=1, max_size=3).map("\n".join)
LEAVES = st.one_of(
    LINES,
    INLINE.map("## {} {{#id}}".format),
    INLINE.map("{0}\n===".format),
    INLINE.map("| {0} | b |\n|---|---|\n| c | {0} |".format),
    st.sampled_from(["```\ncode\n```", "$$\na\n$$", "***", "{{< s >}}", "<!-- c -->", "    code"]),
    st.sampled_from(
        ["[l]: u 't'", "import a from 'b'", "<Tabs>", "<details>\n<p>text</p>\n</details>"]
    ),
)


def indented(text: str, by: str) -> str:
    return "\n".join(by + line if line else line for line in text.split("\n"))


BLOCKS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        .map("\n\n".join)
        .flatmap(
            lambda text: st.sampled_from(
                [
                    indented(text, "> "),
                    "- " + indented(text, "  ")[2:],
                    "1. " + indented(text, "   ")[3:],
                    f"::: tip Title\n{text}\n:::",
                    f'!!! note "Title"\n{indented(text, "    ")}',
                    f'=== "Tab"\n\n{indented(text, "    ")}',
                    f"[^1]: {indented(text, '    ')[4:]}",
                ]
            )
        )
    ),
    max_leaves=5,
)
MARKDOWN = st.lists(BLOCKS, max_size=4).map("\n\n".join)
TEXT = mixed(
    "%s", "{n}", "<b>", "</b>", "%1$s", "\\n", "{n, plural, one {a} other {b}}", "<!--", "'"
)
VALUES = st.recursive(TEXT | st.integers() | st.none(), st.lists, max_leaves=5)
ELEMENTS = ["<p>{}</p>", "<b>{}</b>", "<ul><li>{}</ul>", "<div>{}", "<td>{}</td>"]
ELEMENTS += ["<script>{}</script>"]
HTML = st.recursive(
    mixed(
        *("<br>", "&amp;", "<!-- c -->", "<code>k</code>", "<img alt='x'>"),
        *("<i translate=no>n</i>", "<input type=submit value=send>"),
        # Small letters would tell a sentence from a menu.
        '<div><a title="t &amp; &quot;">L</a> › <a>M</a></div>',
    ),
    lambda inner: st.sampled_from(ELEMENTS).flatmap(lambda form: inner.map(form.format)),
    max_leaves=5,
)
MESSAGES = mixed("{0}", "%s", "''", "<b>", "</b>", "&", "{0,choice,0#a|1#b c}", "\\", "ć")
RUNS = [
    "<{0}:r><{0}:t>{1}</{0}:t></{0}:r>",
    "<{0}:r><{0}:rPr b='1'/><{0}:t>{1}</{0}:t></{0}:r>",
    *("<{0}:r><{0}:rPr lang='x'/><{0}:t> {1} </{0}:t></{0}:r>", "<{0}:br/>", "<{0}:fld/>"),
    "<c:strCache><c:v>{1}</c:v></c:strCache><c:numCache><c:v>{1}</c:v></c:numCache>",
]
PARAGRAPHS = st.lists(
    st.sampled_from(RUNS).flatmap(
        lambda form: mixed("&amp;", "<![CDATA[ c ]]>").map(partial(form.format, "a"))
    ),
    max_size=5,
).map("".join)
CELLS = st.sampled_from(
    [
        "<text:p>{}</text:p>",
        "<text:p>a<office:annotation><text:p>{}</text:p></office:annotation> b</text:p>",
        "<text:p>a <text:span>{}</text:span></text:p>",
        "<table:table-cell table:formula='x'><text:p>{}</text:p></table:table-cell>",
    ]
).flatmap(lambda form: mixed("<text:s/>", "&lt;", "<text:tab/>").map(form.format))
DOCUMENTS: dict[Format, st.SearchStrategy[str]] = {
    Format.MARKDOWN: MARKDOWN,
    Format.HTML: st.lists(HTML).map("".join),
    Format.JSON: st.dictionaries(WORDS, VALUES).map(json.dumps),
    Format.ARB: st.dictionaries(st.sampled_from(["a", "@a", "b"]), VALUES).map(json.dumps),
    Format.STRINGS: st.lists(TEXT.map(lambda text: f'"k" = {json.dumps(text)}; /* c */\n')).map(
        "".join
    ),
    Format.PROPERTIES: st.lists(st.tuples(WORDS, MESSAGES)).map(
        lambda rows: "\n".join(f"k{number}={text}" for number, (_, text) in enumerate(rows))
    ),
    Format.RESX: st.lists(MESSAGES).map(
        lambda texts: f"<root>{''.join(map(VALUE.format, map(escape, texts)))}</root>"
    ),
    Format.PPTX: st.lists(PARAGRAPHS).map(
        lambda texts: office_part("".join(f"<a:p>{each}</a:p>" for each in texts))
    ),
    Format.ODS: st.lists(CELLS).map(lambda cells: odf("".join(cells))),
    Format.SRT: st.lists(mixed("<i>", "</i>", "\\N", "{\\an8}", "-", "\n")).map(
        lambda cues: "\n\n".join(CUE.replace("\r", "") + cue for cue in cues)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DOCUMENTS, ids=lambda kind: kind.value)
@given(data=st.data())
def test_a_document_of_its_grammar(kind: Format, data: st.DataObject) -> None:
    document = data.draw(DOCUMENTS[kind])
    passages = passages_of(kind, document)
    again = sent(passages_of(kind, in_capitals(passages)))
    expected = [capitals(each).text for each in passages if each.has_words]
    assert [text.split() for text in again] == [text.split() for text in expected]
