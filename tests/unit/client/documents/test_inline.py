import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve.documents.formats import Format
from seqserve.documents.html import parse
from seqserve.documents.passage import Link, Translation

from .marking import aligned, passages_of, sent
from .marking import written as rewritten


def written(html: str, target: str, words: str) -> str:
    """Translates the only passage of a document."""
    [passage] = [each for each in parse([html]) if each.text]
    rest = html.removeprefix(passage.before)[len(passage.source) :]
    return passage.before + passage.written(aligned(passage, target, words)) + rest


def test_raised_numbers_are_no_part_of_the_word_before_them() -> None:
    html = "<p>In 1850<sup><a href='#n'>[3]</a></sup> it had 25 m<sup>2</sup>.</p>"
    assert sent(parse([html])) == ["In 1850 it had 25 m."]
    expected = "<p>25 m<sup>2</sup> es 1850<sup><a href='#n'>[3]</a></sup>.</p>"
    assert written(html, "25 m es 1850.", "25 m it 1850 .") == expected
    # A style sheet raises it.
    html = "<p>In 1850<a epub:type='noteref' href='#n'>3</a> it had <a href='#n'>25</a> m.</p>"
    assert sent(parse([html])) == ["In 1850 it had 25 m."]


def test_a_mark_that_begins_a_word_is_no_mark_of_punctuation() -> None:
    html = "<p>It is <b></b> :name <i></i>, not <b></b> %s.</p>"
    assert sent(parse([html])) == ["It is :name, not %s."]


@pytest.mark.parametrize(
    ("html", "target", "words", "expected"),
    [
        (
            "<p>a <b>red car</b> came.</p>",
            "kam ein rotes Auto.",
            "came a red car .",
            "<p>kam ein <b>rotes Auto</b>.</p>",
        ),
        (
            "<i>big <b>red</b></i> car",
            "Auto rot groß",
            "car red big",
            "Auto <i><b>rot</b> groß</i>",
        ),
        ("<b>a</b> <i>b</i>", "B A", "b a", "<i>B</i> <b>A</b>"),
        # What it was around has no word: rather a wrong one than none.
        ("I <b>do</b> like", "Ich mag", "I like", "Ich <b>mag</b>"),
        # Each has a word; where there are too few, one keeps its own.
        ("<b>a</b> b <i>c</i>", "A B", "a a", "<b>A</b> <i>B</i>"),
        ("<b>a</b> b <i>c & d</i>", "A", "a", "<b>A</b> <i>c &amp; d</i>"),
        # Parts of words that are repeated.
        ("H<sub>2</sub>O is wet", "Nass ist H2O", "wet is H2O", "Nass ist H<sub>2</sub>O"),
        ("an <i><b>i</b>Pad</i> a", "A iPad", "a iPad", "A <i><b>i</b>Pad</i>"),
        ("CO<u>2</u> or CO<i>2</i>", "CO2, CO2", "CO2 or CO2", "CO<u>2</u>, CO<i>2</i>"),
        ("<b>un</b>safe or safe", "safe", "safe", "<b>safe</b>"),
        # One run of words, the shortest that has most of them.
        ("<b>give up</b> it", "gib es auf", "give it up", "<b>gib</b> es auf"),
        # Of equal runs, the one whose place is most like that in the source.
        (
            "We saw it <b>today</b>",
            "Wir sahen heute es",
            "today saw today it",
            "Wir sahen <b>heute</b> es",
        ),
        (
            "<b>Today</b> we saw it",
            "Heute sahen wir es",
            "Today saw Today it",
            "<b>Heute</b> sahen wir es",
        ),
        # All of what is around it, punctuation too.
        ("a <a><b>b!</b></a> c", "C B! A", "c b ! a", "C <a><b>B!</b></a> A"),
        ("a <img> b", "B A", "b a", "B A <img>"),
        ("We like <img src=x>!", "Uns gefällt!", "We like !", "Uns gefällt <img src=x>!"),
        ("a <img>, b", "A, B", "a , b", "A <img>, B"),
        ("a <img>, b", "A B", "a b", "A <img> B"),
        ("a <img> <wbr>b", "B A", "b a", "B A <img> <wbr>"),
        ("a <img><wbr> b c", "A B C", "a b c", "A <img><wbr> B C"),
        ("a<b> </b>b <i>c</i>", "B A C", "b a c", "B A<b> </b><i>C</i>"),
        ("a <img> b c", "C A B", "c a b", "C A <img> B"),
        ("a<img src=x> b <wbr>c", "C B A", "c b a", "C B <wbr>A<img src=x>"),
        ("<!-- x -->a <b></b>b<img>", "B A", "b a", "<!-- x -->B A <b></b><img>"),
        ("a &amp; <u>b</u>&nbsp;c", "A & B C", "a & b c", "A &amp; <u>B</u> C"),
        ("<b id='b > c'>a</b> b", "<B A", "b b a", "&lt;B <b id='b > c'>A</b>"),
        # Within a word: the whole word.
        ("un<b>kind</b>ly a", "A unfreundlich", "a unkindly", "A <b>unfreundlich</b>"),
    ],
)
def test_tags_follow_their_words(html: str, target: str, words: str, expected: str) -> None:
    assert written(html, target, words) == expected


@pytest.mark.parametrize(
    ("markdown", "texts", "expected"),
    [
        ("So *very* **good**\n", ["So very good"], "So *very* **good**\n"),
        ("**a *b* c**, d", ["a b c, d"], "**a *b* c**, d"),
        ("[Home](a) › [Shoes](b)", ["Home", "Shoes"], None),
        ('See [the _a_](a.md "t") ![i](i.png) ~~b~~', ["t", "i", "See the a b"], None),
        ("I have **3** cats", ["I have 3 cats"], None),
        ("# A **b**\n\n- [ ] c *d*\n", ["A b", "c d"], None),
        ("a * b * c, 2*3 and d", ["a * b * c, 2*3 and d"], r"a * b * c, 2\*3 and d"),
        ("a [b] c [d][e] *f", ["a [b] c d *f"], r"a \[b\] c [d][e] \*f"),
        (r"a \*b\* c", ["a *b* c"], None),
        (r"\\*a* \[b](c)", ["\\a [b](c)"], r"\\*a* \[b\](c)"),
        ("*a* `b *c* d` <i>e</i> *f*", ["a `b *c* d` e f"], None),
        ("***a** b*", ["a b"], None),
    ],
)
def test_markup_of_markdown(markdown: str, texts: list[str], expected: str | None) -> None:
    passages = passages_of(Format.MARKDOWN, markdown)
    assert sent(passages) == texts
    assert rewritten(passages) == (expected or markdown)


def test_a_script_without_spaces_is_tagged_token_by_token() -> None:
    [passage] = [each for each in parse(["a <b>red</b> car"]) if each.text]
    links = (Link(2, 5, 0, 2), Link(6, 9, 2, 3), Link(6, 9, 3, 4))
    assert passage.written(Translation("赤い車。", links)) == ("<b>赤い</b>車。")


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<p>a <b>b</b> c</p>", ["a b c"]),
        ("<p><b>a <i>b</i></b></p>", ["a b"]),
        ("<b>a</b>", ["a"]),
        ("a<br>b", ["a", "b"]),
        ("a <code>x</code> b", ["a `x` b"]),
        ("<b>a <code>x <i>&lt;</i></code> b</b>", ["a `x <` b"]),
        ("a <i translate=no>x</i> <b>b</b> c", ["a x b c"]),
        ("a <code>x</p> b", ["a"]),
        ("<b>a <i>b</b> c</i> d", ["a", "b", "c", "d"]),
        ("<b>a<p>b</b>", ["a", "b"]),
        ("</b>a <b>b", ["a", "b"]),
        ("a <script>b</script>", ["a"]),
    ],
)
def test_what_divides_a_text(html: str, texts: list[str]) -> None:
    assert sent(passages_of(Format.HTML, html)) == texts


def test_deep_elements_divide_the_text() -> None:
    html = "<b>" * 2000 + "a" + "</b>" * 2000 + "c"
    assert sent(passages_of(Format.HTML, html)) == ["a", "c"]


def test_very_many_elements_divide_the_text() -> None:
    html = "<p>" + "a <b>b</b> " * 2000 + "</p>"
    assert sent(passages_of(Format.HTML, html)) == ["a", "b"] * 2000


def test_passages_know_their_lines() -> None:
    found = list(parse(["<p>a\n", "b <b>c</b>\n", "d</p>\n", "<p>\n", "e</p>"]))
    assert [(each.line, each.text) for each in found if each.text] == [(1, "a b c d"), (5, "e")]


class Tags(HTMLParser):
    """Tags of a document, and whether they are balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.parents: Counter[tuple[str, str]] = Counter()
        self._open: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        name = f"{tag} {attrs}"
        self.tags[name] += 1
        self.parents[self._open[-1][1] if self._open else "", name] += 1
        if tag not in ("br", "img"):
            self._open.append((tag, name))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_comment(self, data: str) -> None:
        self.tags[data] += 1

    def close(self) -> None:
        super().close()
        assert not self._open


def tags_of(text: str) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    tags = Tags()
    tags.feed(text)
    tags.close()
    return tags.tags, tags.parents


LEAVES = ["some text", "a &amp; b", "<br>", "<img src='no'>", "<!-- c -->", " ", "\n", "x, y!"]
LEAVES += ["<script>no</script>", "<i translate='no'>no <b>no</b></i>", "<code>no</code>"]
NODES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.builds(
        lambda tag, id_, parts: f"<{tag} id='x > {id_}'>{''.join(parts)}</{tag}>",
        st.sampled_from(["p", "b", "i", "div", "a", "li", "span"]),
        st.integers(0, 99),
        st.lists(inner, max_size=4),
    ),
    max_leaves=15,
)
WORDS = st.lists(st.sampled_from(["Wörter", "<", ",", "7 & 8", "漢字", " "]), max_size=8)


@pytest.mark.slow
@given(st.lists(NODES).map("".join), st.data())
@settings(max_examples=200)
def test_tags_stay_balanced_and_nested_wherever_words_go(text: str, data: st.DataObject) -> None:
    out = []
    for each in parse([text]):
        rest = each.text
        for kept in each.kept:
            rest = rest.replace(kept, "")
        assert "no" not in rest
        if each.text:
            target = " ".join(data.draw(WORDS))
            places = st.integers(0, len(each.text))
            units = [*re.finditer(r"\w+|[^\w\s]", target)]
            sources = [(place, place + 1) for place in (data.draw(places) for _ in units)]
            links = (
                Link(*source, *unit.span()) for source, unit in zip(sources, units, strict=True)
            )
            out.append(each.before + each.written(Translation(target, tuple(links))))
        else:
            out.append(each.before + each.source)
    assert tags_of("".join(out)) == tags_of(text)
