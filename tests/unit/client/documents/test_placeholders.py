"""Placeholders come back exactly and once, behind the word that they followed."""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format
from seqserve.documents.passage import Link, Passage, Translation

from .marking import marked, passages_of

PLACEHOLDERS = ["{name}", "{0}", "{}", "{{x}}", "${x}", "%{x}", "{x, number}", "$t(key)", "$NAME$"]
PLACEHOLDERS += ["%s", "%1$d", "%(name)s", "%.2f", "%@", "%ld", "%%", "%1", "%name%", "{0:.2f}"]
PLACEHOLDERS += ["<x id='1'/>", "<br>", "https://x.y/a?b=c", "www.x.y", "a.b@x.org", "&nbsp;"]


def aligned(passage: Passage, target: str, words: str) -> Translation:
    """A translation whose words come from these words of the source, in their order."""
    sources = {word[0]: word.span() for word in re.finditer(r"\w+|[^\w\s]", passage.text)}
    places = [word.span() for word in re.finditer(r"\w+|[^\w\s]", target)]
    links = zip(words.split(), places, strict=True)
    return Translation(target, tuple(Link(*sources[word], *place) for word, place in links))


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{p} files", "{p} «files»"),
        ("files in {p}", "«files in» {p}"),
        ("the {p}, or ({p})", "«the» {p}«, or (»{p})"),
        ("{p}\n", "{p}\n"),
    ],
)
def test_the_model_does_not_see_a_placeholder(text: str, expected: str, placeholder: str) -> None:
    source, result = (json.dumps(each.replace("{p}", placeholder)) for each in (text, expected))
    assert json.loads(marked(Format.JSON, source)) == json.loads(result)


@pytest.mark.parametrize(
    "text", ["100% sure", "5 % of it", "a < b > c", "50 $ and 5 $", "snake_case", "x@ y"]
)
def test_what_is_no_placeholder_is_translated(text: str) -> None:
    assert json.loads(marked(Format.JSON, json.dumps(text))) == f"«{text}»"


@pytest.mark.parametrize(
    ("text", "model_sees", "target", "words", "expected"),
    [
        ("I ate {n} eggs", "I ate eggs", "Ich aß Eier", "I ate eggs", "Ich aß {n} Eier"),
        ("Hello {n}, you", "Hello, you", "Hallo, du", "Hello , you", "Hallo {n}, du"),
        ("Hello <b>{n}</b>, you", "Hello, you", "Hallo, du", "Hello , you", "Hallo <b>{n}</b>, du"),
        ("Copy {a} {b} now", "Copy now", "Jetzt kopieren", "now Copy", "Jetzt kopieren {a} {b}"),
        ("see <b>{n} eggs</b> go", "see eggs go", "geh Eier", "go eggs", "geh <b>{n} Eier</b>"),
        ("<b>A </b>{n} or c", "A or c", "C oder A", "c or A", "C oder <b>A</b>{n} "),
        ("for {n}ms now", "for ms now", "jetzt für ms", "now for ms", "jetzt für {n}ms"),
        # Nothing of what it followed has a translation.
        ("a {n} egg", "a egg", "Ei", "egg", "{n} Ei"),
    ],
)
def test_a_placeholder_follows_its_word(
    text: str, model_sees: str, target: str, words: str, expected: str
) -> None:
    [passage] = [each for each in passages_of(Format.JSON, json.dumps(text)) if each.has_words]
    assert passage.text == model_sees
    written = passage.written(aligned(passage, target, words))
    assert passage.before.removeprefix('"') + written == expected


@given(
    st.lists(st.sampled_from([*PLACEHOLDERS, "word", "Zwei", " ", ", ", "(", ")", "\n"])),
    st.randoms(use_true_random=False),
)
def test_every_placeholder_comes_back_once_wherever_words_go(
    parts: list[str], random: Random
) -> None:
    text = " ".join(parts)
    written = ""
    for passage in passages_of(Format.JSON, json.dumps(text)):
        places = [word.span() for word in re.finditer(r"\w+|[^\w\s]", passage.text)]
        targets = places.copy()
        random.shuffle(targets)
        links = (Link(*place, *target) for place, target in zip(places, targets, strict=True))
        translation = Translation(passage.text, tuple(links))
        has_words = passage.has_words
        written += passage.before + (passage.written(translation) if has_words else passage.source)
    kept = [part for part in parts if part in PLACEHOLDERS]
    result = json.loads(written)
    assert Counter(word for word in re.findall(r"\w+", result)) == Counter(re.findall(r"\w+", text))
    for placeholder in kept:
        assert result.count(placeholder) == text.count(placeholder)
