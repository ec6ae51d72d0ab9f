from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import asked, part

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Hypothesis, StopReason
from seqserve_server.features.casing import (
    casing,
    is_all_caps,
    is_title_case,
    uppercase,
    usual_letters,
)
from seqserve_server.features.protected import protected
from seqserve_server.text.protected import protected_spans
from seqserve_server.text.splitting import Span
from seqserve_server.text.tokenizer import Tokenizer

# The commonest first.
VOCABULARY = ["the", "in", "i", "I", "was", "born", "terms", "conditions", "us", "US", "Hawaii"]
VOCABULARY += ["NASA", "may", "May", "Obama", "Italie"]


def cost(word: str) -> tuple[int, float]:
    return (1, VOCABULARY.index(word)) if word in VOCABULARY else (len(word), 0)


def read_as(text: str) -> str:
    kept = protected_spans(text, (), True)
    if is_all_caps(text, kept) or is_title_case(text, kept):
        return usual_letters(text, kept, cost)
    return text


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("WHERE IS THE STATION?", "Where is the station?"),
        ("ÄRGER MIT ÖL!", "Ärger mit öl!"),
        ("DEAR {Name}, SEE a.example.com/B NOW", "Dear {Name}, see a.example.com/B now"),
        ("OBAMA, BORN IN HAWAII IN MAY, DOESN'T", "Obama, born in Hawaii in may, doesn't"),
        ("SO NASA TOLD US: L’ITALIE", "So NASA told us: l’Italie"),
        # A word alone, and letters alone, may be names.
        ("NASA", "NASA"),
        ("I AM", "I AM"),
        ("THE {name}", "THE {name}"),
        ("9:00 AM – 5:30 PM", "9:00 AM – 5:30 PM"),
        ("It says STOP HERE", "It says STOP HERE"),
        ("어디 있습니까 지금?", "어디 있습니까 지금?"),
        ("12 34", "12 34"),
        ("", ""),
        ("Terms and Conditions", "Terms and conditions"),
        ("Barack Obama was Born in Hawaii", "Barack Obama was born in Hawaii"),
        ("Born in the US: McDonald", "Born in the US: McDonald"),
        ("Who was Born in {Our Town}?", "Who was born in {Our Town}?"),
        # Two words may be a name, and names are in sentences.
        ("Obama Terms", "Obama Terms"),
        ("Bob was born in Hawaii", "Bob was born in Hawaii"),
        ("In the End Bob was Born.", "In the End Bob was Born."),
        ("In the Terms I Was Born.", "In the terms i was born."),
        ("The Terms from Hawaii", "The terms from Hawaii"),
        ("Bob Terms left Hawaii", "Bob Terms left Hawaii"),
    ],
)
def test_a_text_in_capitals_or_title_case_is_read_in_usual_letters(text: str, read: str) -> None:
    assert read_as(text) == read


@given(st.text(), st.integers(0, 5), st.integers(0, 5))
def test_each_character_keeps_its_place(text: str, begin: int, length: int) -> None:
    kept = [Span(begin, begin + length)] if begin + length <= len(text) else []
    written = usual_letters(text, kept, cost)
    assert len(written) == len(text)
    assert all(written[slice(*span)] == text[slice(*span)] for span in kept)


def test_the_vocabulary_of_the_model_tells_what_is_usual() -> None:
    feature = casing(asked(lower_capitals=True))
    assert feature
    capitals, heading = map(feature.read, (part("WE SAW BOB"), part("How We Found Bob")))
    assert (capitals.text, feature.rewrites(capitals)) == ("We saw bob", True)
    assert (heading.text, feature.rewrites(heading)) == ("How we found bob", False)


def test_a_word_after_a_bracket_is_read_as_after_a_space() -> None:
    tokenizer = Tokenizer.load(Path("models/en-de/2/tokenizer.json"))
    feature = casing(asked(model=echo_model(manifest(), tokenizer), lower_capitals=True))
    assert feature
    others = ["It is 5 (7) at most", "call f(x) (soon)", "(so) it is", "no ( way) (now)"]
    assert [feature.read(part(text)).text for text in others] == others
    quoted = feature.read(part("»Ja«, sagte er (dann »Nein«).")).text
    assert quoted == '"Ja", sagte er( dann "Nein").'
    assert feature.read(part("Home » Shop")).text == "Home » Shop"
    read = feature.read(part("We met Anna (my sister) and Tom (her son)."))
    assert read.text == "We met Anna( my sister) and Tom( her son)." and feature.rewrites(read)
    # Tags become spaces or nothing before, and are not brackets that have moved.
    protects = protected(asked(model=echo_model(manifest(), tokenizer), keep_placeholders=True))
    assert protects
    texts = ["Anna (<b>my</b> sister)", "call f(<i> x</i>)"]
    tagged, call = [feature.read(protects.read(part(each))) for each in texts]
    assert tokenizer.encode(tagged.text) == tokenizer.encode("Anna( my sister)")
    assert (feature.rewrites(tagged), feature.rewrites(call)) == (True, False)
    text = "Anna( meine Schwester) und Tom(ihr Sohn ( sic))"
    message = generation_pb2.Hypothesis(text=text)
    message.alignment.target_begins.append(text.index("Sohn"))
    message.alignment.target_ends.append(text.index(" ( sic"))
    feature.write(read, Hypothesis([], None, StopReason.EOS), message)
    assert message.text == "Anna (meine Schwester) und Tom (ihr Sohn (sic))"
    place = slice(message.alignment.target_begins[0], message.alignment.target_ends[0])
    assert message.text[place] == "Sohn"


def test_what_a_target_begins_or_ends_with_has_its_letters() -> None:
    assert casing(asked(lower_capitals=True))
    assert not casing(asked())
    assert not casing(asked(lower_capitals=True, target_prefix="Wo"))
    assert not casing(asked(lower_capitals=True, stop_sequences=["."]))


def test_places_follow_letters_that_have_two_capitals() -> None:
    text = "die größte straße ist {name} bei a.example."
    kept = [
        generation_pb2.KeptText(text=each, target_begin=begin, target_end=begin + len(each))
        for each in ("{name}", "a.example")
        for begin in [text.index(each)]
    ]
    words = ["größte", "straße", "ist", "bei"]
    begins = [text.index(word) for word in words]
    message = generation_pb2.Hypothesis(text=text, tokens=["die"], kept=kept)
    message.alignment.target_begins.extend(begins)
    message.alignment.target_ends.extend(map(sum, zip(begins, map(len, words), strict=True)))
    uppercase(message)
    assert message.text == "DIE GRÖSSTE STRASSE IST {name} BEI a.example."
    kept_texts = [message.text[each.target_begin : each.target_end] for each in message.kept]
    assert kept_texts == ["{name}", "a.example"]
    places = zip(message.alignment.target_begins, message.alignment.target_ends, strict=True)
    assert [message.text[begin:end] for begin, end in places] == [w.upper() for w in words]
    assert [*message.tokens] == ["die"]
