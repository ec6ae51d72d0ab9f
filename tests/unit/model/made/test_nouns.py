"""Nouns: every slot of a template in the case that it stands in."""

from __future__ import annotations

import random
import re

import pytest

from seqserve_model.made.language import Language, records, rows
from seqserve_model.made.nouns import Nouns, english, german
from seqserve_model.made.values import Values

NOUNS = {row["de"]: row for row in records("nouns.tsv")}
ADJECTIVES = {row["de"]: row for row in records("adjectives.tsv")}
TEMPLATES = rows("phrases.tsv", "en", "de")["noun"]


def declined(determiner: str, *words: str, is_plural: bool = False) -> str:
    *adjective, noun = words
    row = ADJECTIVES[adjective[0]] if adjective else None
    return german(determiner, row, NOUNS[noun], is_plural)


@pytest.mark.parametrize(
    ("slot", "masculine", "feminine", "neuter"),
    [
        ("der", "der Tisch", "die Tür", "das Buch"),
        ("den", "den Tisch", "die Tür", "das Buch"),
        ("dem", "dem Tisch", "der Tür", "dem Buch"),
        ("ein", "ein Tisch", "eine Tür", "ein Buch"),
        ("keinen", "keinen Tisch", "keine Tür", "kein Buch"),
        ("Ihrem", "Ihrem Tisch", "Ihrer Tür", "Ihrem Buch"),
        ("unser", "unser Tisch", "unsere Tür", "unser Buch"),
        ("dieser", "dieser Tisch", "diese Tür", "dieses Buch"),
        ("welchen", "welchen Tisch", "welche Tür", "welches Buch"),
        ("zum", "zum Tisch", "zur Tür", "zum Buch"),
        ("in den", "in den Tisch", "in die Tür", "ins Buch"),
        ("~ihn", "ihn", "sie", "es"),
        ("", "Tisch", "Tür", "Buch"),
    ],
)
def test_a_determiner_has_the_gender_of_its_noun(
    slot: str, masculine: str, feminine: str, neuter: str
) -> None:
    assert [declined(slot, noun) for noun in ("Tisch", "Tür", "Buch")] == [
        masculine,
        feminine,
        neuter,
    ]


@pytest.mark.parametrize(
    ("slot", "words", "written"),
    [
        ("ein", ("neu", "Tisch"), "ein neuer Tisch"),
        ("ein", ("teuer", "Buch"), "ein teures Buch"),
        ("einen", ("dunkel", "Keller"), "einen dunklen Keller"),
        ("einem", ("hoch", "Tisch"), "einem hohen Tisch"),
        ("der", ("teuer", "Tür"), "die teure Tür"),
        ("dem", ("alt", "Tür"), "der alten Tür"),
        ("den", ("müde", "Bär"), "den müden Bären"),
        ("", ("frisch", "Milch"), "frische Milch"),
        ("-en", ("frisch", "Käse"), "frischen Käse"),
        ("-em", ("kalt", "Wasserhahn"), "kaltem Wasserhahn"),
    ],
)
def test_an_adjective_ends_as_the_determiner_leaves_it(
    slot: str, words: tuple[str, str], written: str
) -> None:
    assert declined(slot, *words) == written


def test_a_determiner_that_is_not_known_is_an_error() -> None:
    with pytest.raises(KeyError):
        declined("eine", "Tür")


@pytest.mark.parametrize(
    ("slot", "words", "written"),
    [
        ("die", ("alt", "Stuhl"), "die alten Stühle"),
        ("den", ("alt", "Stuhl"), "den alten Stühlen"),
        ("den", ("Auto",), "den Autos"),
        ("meinen", ("Tür",), "meinen Türen"),
        ("", ("dunkel", "Keller"), "dunkle Keller"),
        ("-en", ("dunkel", "Keller"), "dunklen Kellern"),
        ("keine", ("teuer", "Auto"), "keine teuren Autos"),
    ],
)
def test_many_have_an_n_in_the_dative(slot: str, words: tuple[str, ...], written: str) -> None:
    assert declined(slot, *words, is_plural=True) == written


def test_weak_nouns_have_an_n_in_all_cases_but_the_first() -> None:
    cases = [declined(slot, "Student") for slot in ("der", "ein", "einen", "dem", "beim", "")]
    assert cases == [
        "der Student",
        "ein Student",
        "einen Studenten",
        "dem Studenten",
        "beim Studenten",
        "Student",
    ]


@pytest.mark.parametrize(
    ("noun", "written"),
    [("Apfel", "an apple"), ("Universität", "a university"), ("USB-Stick", "a USB stick")],
)
def test_an_article_is_spoken_with_its_noun(noun: str, written: str) -> None:
    assert english("a", None, NOUNS[noun], False) == written


def test_both_sides_have_the_same_nouns() -> None:
    known = {(row["en"], row["de"]) for row in records("nouns.tsv")}
    nouns = Nouns("en", "de", random.Random(1))
    for _ in range(100):
        pair = nouns.pair(("{thing}, {animal}, {person}", "{thing}, {animal}, {person}"))
        one, other, name = zip(*(side.split(", ") for side in pair), strict=True)
        assert {one, other} <= known
        assert name == ("{person}", "{person}")


def test_a_sentence_begins_with_a_capital() -> None:
    nouns = Nouns("en", "de", random.Random(1))
    source, target = nouns.pair(("{My thing}. {A quality thing}.", "{Mein thing}. {~Er thing}."))
    assert re.fullmatch(r"My .+\. An? .+\.", source)
    assert re.fullmatch(r"(Mein|Meine) \w[\w-]+\. (Er|Sie|Es)\.", target)


def test_a_template_has_no_noun_twice() -> None:
    nouns = Nouns("en", "de", random.Random(1))
    for _ in range(200):
        one, other = nouns.pair(("{home}", "{home} {home2}"))[1].split()
        assert one != other


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en")])
def test_every_template_can_be_filled(source: str, target: str) -> None:
    draw = random.Random(1)
    nouns = Nouns(source, target, draw)
    values = Values(Language.of(source), Language.of(target), draw)
    for template in rows("phrases.tsv", source, target)["noun"]:
        for _ in range(5):
            filled = nouns.pair(template)
            assert all(side and not re.search(r"  |^ | $| [.,?!]", side) for side in filled)
            assert not any(re.search(r"[{}]", side) for side in values.pair(filled))


def test_a_template_has_the_same_nouns_in_both_languages() -> None:
    def slots(side: str) -> set[str]:
        return {slot.split()[-1].lower() for slot in re.findall(r"\{([^{}]+)\}", side)}

    for source, target in TEMPLATES:
        assert {slot.rstrip("s") for slot in slots(source)} == {
            slot.rstrip("s") for slot in slots(target)
        }


def test_a_noun_is_written_once_for_a_kind() -> None:
    seen = set()
    for row in records("nouns.tsv"):
        assert row["gender"] in "mfnw"
        assert row["de"] and row["en"]
        for kind in row["kind"].split():
            assert (kind, row["en"]) not in seen
            seen.add((kind, row["en"]))
