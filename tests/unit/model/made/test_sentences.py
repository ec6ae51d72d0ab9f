"""Changes of sentences: both sides, or neither."""

from __future__ import annotations

import random
import re

import pytest

from seqserve_model.data import Pair
from seqserve_model.made.language import Language
from seqserve_model.made.sentences import Sentences, joined


def sentences(seed: int = 1, target: str = "de") -> Sentences:
    return Sentences(Language.of("en"), Language.of(target), random.Random(seed))


def changes(kind: str, pair: Pair, count: int = 100) -> list[Pair]:
    maker = sentences()
    made = [getattr(maker, kind)(pair) for _ in range(count)]
    return [pair for pair in made if pair is not None]


def test_a_name_is_replaced_by_the_same_on_both_sides() -> None:
    made = changes("names", Pair("Yesterday Tom slept.", "Gestern schlief Tom."))
    names = set()
    for pair in made:
        name = pair.source.removeprefix("Yesterday ").removesuffix(" slept.")
        assert pair.target == f"Gestern schlief {name}."
        names.add(name)
    assert len(names) > 80


def test_a_genitive_stays_one() -> None:
    for pair in changes("names", Pair("Tom's car is red.", "Toms Auto ist rot.")):
        name = pair.source.removesuffix("'s car is red.")
        ending = "’" if name[-1] in "sßxz" else "s"
        assert pair.target == f"{name}{ending} Auto ist rot."


def test_a_name_that_has_two_forms_is_known() -> None:
    for pair in changes("names", Pair("I like Mary.", "Ich mag Maria.")):
        assert "Maria" not in pair.target or "Maria" in pair.source
        assert pair.target == f"Ich mag {pair.source[7:-1]}."


def test_places_have_the_form_of_their_language() -> None:
    made = changes("names", Pair("We are in Boston.", "Wir sind in Boston."), 1_000)
    places = {(pair.source[10:-1], pair.target[12:-1]) for pair in made}
    assert ("Munich", "München") in places
    assert ("Lima", "Lima") in places
    assert ("Munich", "Munich") not in places


@pytest.mark.parametrize(
    "pair",
    [
        Pair("It rains.", "Es regnet."),
        Pair("Tom said that Tom slept.", "Tom sagte, er habe geschlafen."),
        Pair("Tomorrow.", "Morgen."),
        Pair("He is a Tom-fan.", "Er ist ein Tom-Fan."),
    ],
)
def test_names_that_do_not_stand_as_often_on_both_sides_stay(pair: Pair) -> None:
    assert changes("names", pair) == []


def test_numbers_are_replaced_on_both_sides() -> None:
    for pair in changes("numbers", Pair("I have three dogs.", "Ich habe drei Hunde.")):
        number = pair.source.removeprefix("I have ").removesuffix(" dogs.")
        german = number.translate(str.maketrans(",.", ".,"))
        assert pair.target == f"Ich habe {german} Hunde."
    for pair in changes("numbers", Pair("It was built in 1990.", "Es wurde 1990 gebaut.")):
        assert re.findall(r"\d{4}", pair.source) == re.findall(r"\d{4}", pair.target) != []


@pytest.mark.parametrize(
    "pair",
    [
        Pair("At three o'clock.", "Um drei Uhr."),
        Pair("Two of three.", "Zwei von drei."),
        Pair("I saw two.", "Ich sah vier."),
        Pair("At 3:30.", "Um 3:30."),
        Pair("It is 1.5 m.", "Es sind 1,5 m."),
        Pair("2,000 people", "2.000 Leute"),
        Pair("In 1990.", "Im Jahr 90."),
    ],
)
def test_numbers_that_mean_something_else_stay(pair: Pair) -> None:
    assert changes("numbers", pair) == []


def test_both_sides_end_alike() -> None:
    made = changes("ending", Pair("Kiss Tom.", "Küsse Tom!"))
    ends = {pair.source.removeprefix("Kiss Tom") for pair in made}
    assert {"", "!", "?", "...", " ."} <= ends
    for pair in made:
        assert pair.target == "Küsse Tom" + pair.source.removeprefix("Kiss Tom").strip()


def test_a_question_is_not_exclaimed_as_a_statement_is() -> None:
    ends = {pair.source[5:] for pair in changes("ending", Pair("Is it?", "Ist es?"))}
    assert "" in ends and "…" not in ends


@pytest.mark.parametrize("pair", [Pair('"Yes."', "„Ja.“"), Pair("Yes 🙂", "Ja 🙂")])
def test_other_ends_stay(pair: Pair) -> None:
    assert changes("ending", pair) == []


def test_small_letters_are_typed_capitals_are_shouted_back() -> None:
    made = {*changes("letters", Pair("I like my street.", "Ich mag meine Straße."))}
    assert made == {
        Pair("i like my street.", "Ich mag meine Straße."),
        Pair("I Like My Street.", "Ich mag meine Straße."),
        Pair("I LIKE MY STREET.", "ICH MAG MEINE STRASSE."),
    }


def test_hangul_is_typed_in_one_way() -> None:
    maker = Sentences(Language.of("ko"), Language.of("en"), random.Random(1))
    pair = Pair("나는 잔다.", "I sleep.")
    assert not any(maker.letters(pair) for _ in range(50))


def test_joined_sentences_keep_their_order() -> None:
    pairs = [Pair("One.", "Eins."), Pair("Two.", "Zwei."), Pair("Three.", "Drei.")]
    assert joined(pairs) == Pair("One. Two. Three.", "Eins. Zwei. Drei.")


def test_korean_names_stay() -> None:
    assert sentences(target="ko").names(Pair("Tom sleeps.", "톰은 잔다.")) is None
