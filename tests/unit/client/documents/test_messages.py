import json
import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format

from .marking import aligned, marked, pairs, passages_of, shuffled, written

PLACEHOLDERS = ["{name}", "{0}", "{}", "{{x}}", "${x}", "%{x}", "{x, number}", "$t(key)", "$NAME$"]
PLACEHOLDERS += ["%s", "%1$d", "%(name)s", "%.2f", "%@", "%ld", "%%", "%1", "%name%", "{0:.2f}"]
PLACEHOLDERS += ["<x id='1'/>", "<br>", "https://x.y/a?b=c", "www.x.y", "a.b@x.org", "&nbsp;"]


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        "{p} «files»",
        "«files in» {p}",
        "«the» {p}«, or (»{p})",
        "{p}\n",
    ),
)
def test_without_attention_placeholders_divide(text: str, expected: str, placeholder: str) -> None:
    source, result = (json.dumps(each.replace("{p}", placeholder)) for each in (text, expected))
    assert json.loads(marked(Format.JSON, source)) == json.loads(result)


@pytest.mark.parametrize(
    "text", ["100% sure", "5 % of it", "a < b > c", "50 $ and 5 $", "snake_case", "x@ y"]
)
def test_what_is_no_placeholder_is_translated(text: str) -> None:
    assert json.loads(marked(Format.JSON, json.dumps(text))) == f"«{text}»"


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        "&«File»",
        "_«Save…»",
        "«Save» &«as»",
        "«a & b, R&D, a &&b»",
        "«_Save _As_ _Is_»",
    ),
)
def test_the_key_of_a_label_is_marked_in_its_translation(text: str, expected: str) -> None:
    assert json.loads(marked(Format.JSON, json.dumps(text))) == expected


LONG = "{{ the_number_of_all_files_that_were_deleted }}"


@pytest.mark.parametrize(
    ("text", "model_sees", "target", "words", "expected"),
    [
        ("I ate {n} eggs", None, "Ich aß {n} Eier", "I ate {n} eggs", None),
        ("{n} is here", None, "Hier ist {n}", "here is {n}", None),
        ("Hello <b>{n}</b>, you", "Hello {n}, you", "Hallo {n}, du", "Hello {n} , you",
         "Hallo <b>{n}</b>, du"),
        ("Copy {a} {b} now", None, "Jetzt {b}{a} kopieren", "now {b} {a} Copy", None),
        ("see <b>{n} eggs</b> go", "see {n} eggs go", "geh {n} Eier", "go {n} eggs",
         "geh <b>{n} Eier</b>"),
        ("see <b>the {n}</b> go", "see the {n} go", "{n} geh das", "{n} go the",
         " geh <b>das {n}</b>"),
        # Two that are around words are an element.
        ("go {b}here{e} now", "go here now", "jetzt hier gehen", "now here go",
         "jetzt {b}hier{e} gehen"),
        ("So %1$sgo here.%2$s", "So go here.", "Hier geh so.", "here go So .",
         "%1$sHier geh%2$s so."),
        ("in {a}ms of {b}s", None, "in {a}ms von {b}s", "in {a} ms of {b} s", None),
        ("for {n}ms now", None, "jetzt für {n}ms", "now for {n} ms", None),
        (f"a {LONG} b", "a {0} b", "B {0} A", "b {0} a", f"B {LONG} A"),
        # It was lost: behind the word before it.
        ("a {n} egg", None, "Ein Ei", "a egg", "Ein {n} Ei"),
    ],
)  # fmt: skip
def test_the_model_reads_a_placeholder_which_comes_back_where_it_writes_it(
    text: str, model_sees: str | None, target: str, words: str, expected: str | None
) -> None:
    [passage] = [each for each in passages_of(Format.JSON, json.dumps(text)) if each.has_words]
    assert passage.text == (model_sees or text)
    answer = passage.written(aligned(passage, target, words))
    assert json.loads(f'{passage.before}{answer}"') == (expected or target)


@given(
    st.lists(st.sampled_from([*PLACEHOLDERS, "word", "Zwei", " ", ", ", "(", ")", "\n"])),
    st.randoms(use_true_random=False),
)
def test_placeholders_come_back_once_wherever_words_go(parts: list[str], random: Random) -> None:
    text = " ".join(parts)
    passages = passages_of(Format.JSON, json.dumps(text))
    result = json.loads(written(passages, lambda each: shuffled(each, random)))
    assert Counter(re.findall(r"\w+", result)) == Counter(re.findall(r"\w+", text))
    for placeholder in PLACEHOLDERS:
        assert placeholder not in parts or result.count(placeholder) == text.count(placeholder)
