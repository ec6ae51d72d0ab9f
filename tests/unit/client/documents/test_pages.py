"""Shapes of pages: menus, cards, forms, tables, footers; their texts in attributes, their language.

A model answers each text in capitals.
"""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.attributes import Languages
from seqserve.documents.formats import Format, parser_of
from seqserve.documents.html import parse, parse_xhtml
from seqserve.documents.passage import Link, Translation
from seqserve.documents.report import Report

from .marking import capital_pairs, in_capitals, marked, pairs, passages_of, sent


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        "<p><a>«Home»</a> › <a>«Products»</a> &raquo; <a>«Shoes»</a></p>",
        "<p>«You are here:» <a>«Home»</a> &gt; <b>«Big shoes»</b> / «Red»</p>",
        "<nav><a>«Home»</a> <a>«About us»</a></nav>",
        "<nav><a>«Home»</a><a>«us»</a></nav>",
        "«Tags:» <a>«red»</a>, <a>«blue»</a>",
        "<a><span>«4 stars»</span> <span>«Rated by 2»</span></a>",
        "<i></i><a>«Home»</a> | <a>«c»</a>",
        "<a>«Home»</a> <span>/</span> <a>«Tom's»</a><!-- c -->",
        "«© 2024 Tom» | <a>«Terms»</a>",
        # Sentences.
        ("See <a>a</a> | <a>b</a>.", "«See a | b.»"),
        ("<a>Tom</a>, <a>Ann</a> and <a>Jim</a>", "«Tom, Ann and Jim»"),
        ("Yes, <a>click here</a>", "«Yes, click here»"),
        ("<b>Very</b> <em>good</em>", "«Very good»"),
        ("<span>We are</span> <span>not sure</span>", "«We are not sure»"),
        ("<span>Th</span><span>E</span>", "«ThE»"),
        ("AC/<a>DC</a> and <b>he</b>/<b>she</b>", "«AC/DC and he/she»"),
        ("<a>a</a>: b", "«a: b»"),
    ),
)
def test_a_menu_is_texts_and_a_sentence_is_one(text: str, expected: str) -> None:
    texts = [each.text for each in passages_of(Format.HTML, text) if each.has_words]
    if "</" in expected:
        assert marked(Format.HTML, text) == expected
    assert texts == [part.partition("»")[0] for part in expected.split("«")[1:]]


@pytest.mark.parametrize(
    ("text", "expected"),
    capital_pairs(
        '<img src="a.png" alt="A «red dog»" title=\'«Tom»\'>',
        ("<img alt=dog src=a><b title=12>", '<img alt="DOG" src=a><b title=12>'),
        '<p>«See» <img alt="«a dog»"> «and» <a href="x" title="«a page»">«this»</a> «now».</p>',
        '<a aria-label="«Close»"><i></i> ×</a>',
        '<a title="«a»"><b title="«c»">«d»</b></a>',
        '<input type=submit value="«Send it»"><input value="me"><INPUT TYPE="Button" VALUE="«a»">',
        '<textarea placeholder="«Write»">b</textarea><pre title="«code»">c</pre>',
        '<optgroup label="«Cars»"><option label="«One»">«a»</optgroup>',
        (
            '<meta name="Description" content="A «page»"><meta property=og:title '
            'content="«a b»"><meta name="author" content="Tom"><title>«a»</title>'
        ),
        # What a program fills in stays.
        '<p {% if a == "b" %}class="c"{% endif %}>«d» {{< e "f" >}} «g»</p>',
        '<a href="{{ h "i" }}" title="{{ j }}" aria-label="«k»">«l» <%= m > n %></a>{{ o }}{% p %}',
        # What is marked stays, and its attributes.
        '<p translate=no title="a"><img alt="b"></p><p title="«c»"></p>',
        '<img translate="no" alt="b"> «a»',
        '«a» <code title="«b»">x</code> «c»',
        '<p title="«a»" title="b" data-title=\'c\' x=\'title="y"\'>',
    ),
)
def test_attributes_that_are_texts(text: str, expected: str) -> None:
    assert in_capitals(passages_of(Format.HTML, text)) == expected


def test_attributes_of_xhtml() -> None:
    [(text, expected)] = capital_pairs(
        "<html><p title='«a»'>«See» <img alt='\"«b»\" &lt; «c»'/> <b title='«d»'><i>«e»</i></b> «f»"
        '</p><textarea placeholder="«g»">h</textarea><code title="i">j</code><a title="«k»"></a>'
        "</html>"
    )
    assert in_capitals(passages_of(Format.EPUB, text)) == expected


@given(st.text("ab \"'&<>\n"), st.sampled_from("\"'"))
def test_a_translation_of_an_attribute_stays_in_its_quotes(text: str, quote: str) -> None:
    image, sentence, rule, _ = parse([f"<p>a <img alt={quote}x{quote}> b</p><hr title=y>"])
    assert (image.written(Translation(text)), image.source) == ("", "")
    links = (Link(0, 1, 0, 1), Link(2, 3, 2, 3))
    value = rf"([^<{quote}]*){quote}"
    found = re.fullmatch(
        rf"A <img alt={quote}{value}> B", sentence.written(Translation("A B", links))
    )
    assert found and unescape(found[1]) == text
    bare = re.fullmatch(r'"([^<"]*)"', rule.written(Translation(text)))
    assert bare and unescape(bare[1]) == text


PAGE = """<!DOCTYPE html><html lang="{}"><body><p lang="en-GB">a <i lang="fr">b</i> c</p>
<ul><li><a lang="fr" title="d">e</a><li lang='fr'>f <b lang=en>g</b></ul><pre lang=en>h</pre>"""


@pytest.mark.parametrize(
    ("languages", "page", "expected", "texts"),
    [
        (("en", "de"), "en", ["de", "de", "fr", "fr", "fr", "de", "en"], ["a b c", "g"]),
        (("", "pt_BR"), "en", ["pt-BR", "pt-BR", "fr", "fr", "fr", "pt-BR", "en"], ["a b c", "g"]),
        (("auto", "deu_Latn"), "en", ["de", "de", "fr", "fr", "fr", "de", "en"], ["a b c", "g"]),
        # A page whose language is wrong; one whose language is not known.
        (("eng", "de"), "it", ["it", "de", "fr", "fr", "fr", "de", "en"], ["a b c", "g"]),
        (("", "de"), "", ["", "en-GB", "fr", "fr", "fr", "en", "en"], ["a b c", "d", "e", "f g"]),
        (("", ""), "en", ["en", "en-GB", "fr", "fr", "fr", "en", "en"], ["a b c", "g"]),
    ],
)
def test_the_language_of_a_page_follows(
    languages: tuple[str, str], page: str, expected: list[str], texts: list[str]
) -> None:
    passages = [*parse([PAGE.format(page)], Languages(*languages))]
    assert sent(passages) == texts
    codes = re.findall(
        r"lang=[\"']?([\w-]*)", "".join(each.before + each.source for each in passages)
    )
    assert codes == expected


def test_the_language_of_a_page_of_a_book_follows() -> None:
    pages = '<p xml:lang="fr">a</p><p>b <i lang="fr">c</i></p><pre lang="en">d</pre>'
    text = f'<html lang="en" xml:lang="en">{pages}</html>'
    passages = [*parse_xhtml([text], Languages("en", "de"))]
    assert sent(passages) == ["b c"]
    assert in_capitals(passages) == text.replace('"en"', '"de"', 2).replace("b <i", "B <i")
    assert [each.copied for each in passages if each.copied] == ["other language", "code"]


def test_the_titles_and_the_language_of_a_book_follow() -> None:
    told = "<metadata><dc:title id='t'>{}</dc:title><dc:creator>ann</dc:creator>"
    told += "<dc:language>{}</dc:language><meta name='title'>no</meta></metadata>"
    book = f"<package xmlns='opf' xmlns:dc='dc'>{told}</package>"
    for code, expected in (("en-US", "de"), ("fr", "fr")):
        source = book.format("the life &amp; work", code)
        passages = parser_of(Format.EPUB, languages=Languages("en", "de"))([source])
        assert in_capitals(passages) == book.format("THE LIFE &amp; WORK", expected)
    same = in_capitals(passages_of(Format.EPUB, book.format("a", "en")))
    assert same == book.format("A", "en")


def test_a_page_has_no_texts_that_are_not_told_of() -> None:
    report = Report()
    text = '<html lang="en"><a title="a">b</a> <i>c</i><p lang="fr">d<pre>e</pre>'
    for each in passages_of(Format.HTML, text):
        report.add(each, each.text if each.has_words else None)
    assert str(report) == "2 passages translated, 2 copied (other language 1, code 1), 0 left"


def test_a_text_that_stays_in_its_element_is_left() -> None:
    report = Report()
    [passage, _] = parse(["<b>a</b> b <i>c</i>"])
    assert passage.written(Translation("A", (Link(0, 1, 0, 1),))) == "<b>A</b> <i>c</i>"
    report.add(passage, "A")
    assert report.left == 1 and "'c'" in str(report.facts())


CARD = """<div class="card"><img src="s.png" alt="Red shoes"><h3><a href="s">Running shoes</a></h3>
<p><span class="price">€ 20</span> <s>€ 30</s></p><p>Light <b>and</b> fast.</p>
<a class="button" href="b" aria-label="Add to basket"><span>Buy</span></a></div>
<form><label for="m">E-mail <input id="m" placeholder="Your e-mail" value="tom@a.b"></label>
<input type="submit" value="Send"></form>
<table><tr><th>Size<td>10</table><footer>© 2024 Tom · <a>Terms</a> · <a>Contact us</a></footer>"""


def test_a_page() -> None:
    passages = passages_of(Format.HTML, CARD)
    assert sent(passages) == [
        *("Red shoes", "Running shoes", "Light and fast.", "Add to basket", "Buy", "E-mail"),
        *("Your e-mail", "Send", "Size", "© 2024 Tom", "Terms", "Contact us"),
    ]
