"""What of HTML is translated. «» stand around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format

from .marking import in_capitals, marked, pairs, passages_of, sent


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        ("<p>Some\n  text.</p>\n", "<p>«Some text.»</p>\n"),
        '<p id="no">«a» <b>«b»</b> «c»</p>',
        ("a &lt; b &amp; &copy;&nbsp;c &#8364;", "«a &lt; b &amp; ©&nbsp;c €»"),
        "<script>a('<p>b</p>')</script><style>p{}</style>",
        "<pre>a <b>b</b></pre><code>c</code><textarea>d</textarea>",
        "<!-- a --><!DOCTYPE html><?php b ?>",
        '<p translate="no">a <i>b</i></p>«c»',
        '<p translate="no">a <i translate="yes">«b»</i></p>',
        '<b class="x notranslate">a</b>',
        "<ul><li>«a»<li>«b»</ul><br>«c»<img src=x>«d»",
        ("a < b <c", "«a &lt; b &lt;c»"),
        "</p>«a»</b>",
        "<P>«a»</P>\r\n<Br/>«b»",
        # End tags that may be left out.
        '<li translate="no">a<li>«b»',
        "<p translate=no>a<p>«b»<div>«c»",
        "<p translate=no>a<i>b<ul><li>«c»",
        "<table>\r\n<tr><td translate=no>a<td>«b»<tr><th>«c»</table>",
        "<td translate=no>a<td>«b»",
        "<tr translate=no><td>a<tr><td>«b»",
        "<dl><dt translate=no>a<dd>«b»</dl>",
        "<select><option translate=no>a<option>«b»</select>",
        "<div translate=no><ul><li>a</div>«b»",
        "<div translate=no></p></b>a</div>«b»",
        "<p translate=NO>a<p translate=x>«b»",
        # Declarations, and what only looks like markup.
        "<![x]>«a»<![CDATA[b]]>«c»<!x>«d»",
        ("<title>a <b> c</title>d", "<title>«a &lt;b&gt; c»</title>«d»"),
        # Tags of SVG that mean something else in HTML.
        "«a»<svg><g/></svg>«b»<svg/>«c»",
        "<svg>\r\n<style/><title/></svg>\r\n«a»",
        "<svg><g><svg><script/></svg></g></svg>«a»",
        "<svg><![CDATA[a></svg>b]]></svg>«c»",
        "<p>«a»</p><!-- b",
    ),
)
def test_html(text: str, expected: str) -> None:
    assert marked(Format.HTML, text) == expected


CONTAINERS = {
    "ul": ("<ul>", "li", "</ul>"),
    "dl": ("<dl>", "dt", "</dl>"),
    "row": ("<table><tr>", "td", "</table>"),
    "rows": ("<table>", "tr", "</table>"),
    "paragraphs": ("<div>", "p", "</div>"),
    "options": ("<select>", "option", "</select>"),
}
ITEMS = st.tuples(st.sampled_from(["", " translate=no", " class='x notranslate'"]), st.booleans())


@given(
    st.lists(st.tuples(st.sampled_from([*CONTAINERS]), st.lists(ITEMS, max_size=4)), max_size=3),
    st.sampled_from(["", "<div translate=no>no</div>", "<![x]>", "<!-- x -->", "<i>"]),
    st.sampled_from(["\n", "\r\n", "\r", ""]),
)
def test_an_end_tag_that_is_left_out_changes_nothing(
    containers: list[tuple[str, list[tuple[str, bool]]]], between: str, line_end: str
) -> None:
    texts, html = [], between
    for name, items in containers:
        begin, tag, end = CONTAINERS[name]
        html += line_end + begin
        for attribute, is_closed in items:
            text = f"no{len(html)}" if attribute else f"yes{len(html)}"
            texts += [] if attribute else [text]
            inner = f"<td>{text}" if tag == "tr" else text
            html += f"<{tag}{attribute}>{inner}" + f"</{tag}>" * is_closed
        html += end + between
    passages = passages_of(Format.HTML, html)
    assert sent(passages) == texts


PIECES = ["<p>", "</p>", "<b", ">", "<!", "--", "-->", "<![", "]]>", "=", '"', "'", "</"]
PIECES += ["/", " ", "<svg>", "</svg>", "<title>", "<script>", "</script>", "<table>"]
PIECES += ["<td>", "&", "a", "\0", "<plaintext>", "<template>", "</template>"]
PIECES += ["<select>", "<br/>", "</br>", "title=", " alt='a'", "<a lang=b "]
PIECES += ["<a title='c'>d</a>", " › ", '<img alt="e">', "\r", "\x0c", "😀"]


@given(st.lists(st.sampled_from(PIECES)).map("".join) | st.text())
def test_any_markup_is_kept_to_the_byte(html: str) -> None:
    passages_of(Format.HTML, html)


def test_what_a_template_has_is_read_as_elsewhere() -> None:
    html = (
        "<p>a</p><template><script>no</script><h2>b</h2><i translate='no'>no</i><p>c</template>d"
        "<table><template><tr><td>e<td lang=fr>no</table>"
    )
    assert sent(passages_of(Format.HTML, f"<html lang=en>{html}")) == ["a", "b", "c", "d", "e"]


def test_what_stays_is_named_with_its_reason() -> None:
    document = (
        "<p>Hi.</p><pre>a &amp; b</pre><svg><text>Sun</text></svg><textarea>Write</textarea>"
        '<script>go()</script><p translate="no">Tom</p>'
    )
    passages = passages_of(Format.HTML, document)
    copied = [(each.source, each.copied) for each in passages if each.copied]
    reasons = [("a &amp; b", "code"), ("<text>Sun</text>", "unread"), ("Write", "unread")]
    assert copied == [*reasons, ("Tom", "marked")]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("<html><head><title/><script/></head><body><p>a <b>b</b></p></body></html>", ["a b"]),
        ("<p>a&nbsp;b <![CDATA[c & d]]><br/>e <code>x</code> <i class='notranslate'>f</i></p>",
         ["a\u00a0b c & d", "e `x` f"]),
        ("<ncx><navLabel><text>a</text></navLabel><content src='b'/></ncx>", ["a"]),
        # What is no XML is read as HTML.
        ("<p>a<p>b & <b>c", ["a", "b &", "c"]),
    ],
)  # fmt: skip
def test_pages_of_books(text: str, texts: list[str]) -> None:
    source = f'<?xml version="1.0"?><!DOCTYPE html SYSTEM "x">\n{text}\n'
    passages = passages_of(Format.EPUB, source)
    assert sent(passages) == texts


@pytest.mark.parametrize("program", ["{{ a\n | b }}", "{# a #}", "<?php a($b->c) ?>", "<?= $a ?>"])
def test_programs_in_pages_stay(program: str) -> None:
    passages = passages_of(Format.HTML, f"<p title='{program}'>c {program} d</p>\n<p>e</p>\n")
    result = f"<p title='{program}'>C {program} D</p>\n<p>E</p>\n"
    assert in_capitals(passages) == result
    assert [each.line for each in passages][1] == 2 + 2 * program.count("\n")
