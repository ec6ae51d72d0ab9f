"""Shapes of pages: menus, cards, forms, tables, footers; their texts in attributes, their language.

A model answers each text in capitals.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.attributes import Languages
from seqserve.documents.formats import Format
from seqserve.documents.html import parse, parse_xhtml
from seqserve.documents.report import Report

from .marking import marked, passages_of
from .translating import in_capitals


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<p><a>Home</a> › <a>Products</a> &raquo; <a>Shoes</a></p>",
            "<p><a>«Home»</a> › <a>«Products»</a> &raquo; <a>«Shoes»</a></p>",
        ),
        (
            "<p>You are here: <a>Home</a> &gt; <b>Big shoes</b> / Red</p>",
            "<p>«You are here:» <a>«Home»</a> &gt; <b>«Big shoes»</b> / «Red»</p>",
        ),
        ("<nav><a>Home</a> <a>About us</a></nav>", "<nav><a>«Home»</a> <a>«About us»</a></nav>"),
        ("<nav><a>Home</a><a>us</a></nav>", "<nav><a>«Home»</a><a>«us»</a></nav>"),
        ("Tags: <a>red</a>, <a>blue</a>", "«Tags:» <a>«red»</a>, <a>«blue»</a>"),
        (
            "<a><span>4 stars</span> <span>Rated by 2</span></a>",
            "<a><span>«4 stars»</span> <span>«Rated by 2»</span></a>",
        ),
        ("<i></i><a>Home</a> | <a>c</a>", "<i></i><a>«Home»</a> | <a>«c»</a>"),
        (
            "<a>Home</a> <span>/</span> <a>Tom's</a><!-- c -->",
            "<a>«Home»</a> <span>/</span> <a>«Tom's»</a><!-- c -->",
        ),
        ("© 2024 Tom | <a>Terms</a>", "«© 2024 Tom» | <a>«Terms»</a>"),
        # Sentences.
        ("See <a>a</a> | <a>b</a>.", "«See a | b.»"),
        ("<a>Tom</a>, <a>Ann</a> and <a>Jim</a>", "«Tom, Ann and Jim»"),
        ("Yes, <a>click here</a>", "«Yes, click here»"),
        ("<b>Very</b> <em>good</em>", "«Very good»"),
        ("<span>We are</span> <span>not sure</span>", "«We are not sure»"),
        ("<span>Th</span><span>E</span>", "«ThE»"),
        ("AC/<a>DC</a> and <b>he</b>/<b>she</b>", "«AC/DC and he/she»"),
        ("<a>a</a>: b", "«a: b»"),
    ],
)
def test_a_menu_is_texts_and_a_sentence_is_one(text: str, expected: str) -> None:
    texts = [each.text for each in passages_of(Format.HTML, text) if each.has_words]
    if "</" in expected:
        assert marked(Format.HTML, text) == expected
    assert texts == [part.partition("»")[0] for part in expected.split("«")[1:]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '<img src="a.png" alt="A red dog" title=\'Tom\'>',
            '<img src="a.png" alt="A RED DOG" title=\'TOM\'>',
        ),
        ("<img alt=dog src=a><input placeholder=12>", '<img alt="DOG" src=a><input placeholder=12>'),
        (
            '<p>See <img alt="a dog"> and <a href="x" title="a page">this</a> now.</p>',
            '<p>SEE <img alt="A DOG"> AND <a href="x" title="A PAGE">THIS</a> NOW.</p>',
        ),
        ('<a aria-label="Close"><i class="x"></i></a>', '<a aria-label="CLOSE"><i class="x"></i></a>'),
        ('<a title="a"><b title="c">d</b></a>', '<a title="A"><b title="C">D</b></a>'),
        (
            '<input type=submit value="Send it"><input value="me"><INPUT TYPE="Button" VALUE="a">',
            '<input type=submit value="SEND IT"><input value="me"><INPUT TYPE="Button" VALUE="A">',
        ),
        (
            '<textarea placeholder="Write">b</textarea><pre title="code">c</pre>',
            '<textarea placeholder="WRITE">b</textarea><pre title="CODE">c</pre>',
        ),
        (
            '<optgroup label="Cars"><option label="One">a</optgroup>',
            '<optgroup label="CARS"><option label="ONE">A</optgroup>',
        ),
        (
            '<meta name="Description" content="A page"><meta property=og:title content="a b">'
            '<meta name="author" content="Tom"><title>a</title>',
            '<meta name="Description" content="A PAGE"><meta property=og:title content="A B">'
            '<meta name="author" content="Tom"><title>A</title>',
        ),
        # What is marked stays, and its attributes.
        ('<p translate=no title="a"><img alt="b"></p><p title="c"></p>',
         '<p translate=no title="a"><img alt="b"></p><p title="C"></p>'),
        ('<img translate="no" alt="b"> a', '<img translate="no" alt="b"> A'),
        ('a <code title="b">x</code> c', 'A <code title="B">x</code> C'),
        ("<p title=\"a\" title=\"b\" data-title='c' x='title=\"y\"'>",
         "<p title=\"A\" title=\"b\" data-title='c' x='title=\"y\"'>"),
    ],
)  # fmt: skip
def test_attributes_that_are_texts(text: str, expected: str) -> None:
    passages = passages_of(Format.HTML, text)
    assert "".join(each.before + each.source for each in passages) == text
    assert in_capitals(passages) == expected
    # As XML they are the same.
    xhtml = f"<html>{text}</html>"
    if '"A red dog"' in text or "this" in text:
        assert in_capitals(passages_of(Format.EPUB, xhtml)) == f"<html>{expected}</html>"
