import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.echo import byte_tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from seqserve_server.text.spelling import Spelling
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import BOS, EOS, PAD, UNK

LAYOUT = (
    "\u00ad\u200b\u200e\u200f\u2060\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
)
ZWNJ, ZWJ, EMOJI = "\u200c", "\u200d", "\ufe0f"
LATIN = frozenset("abcdefghijklmnopqrstuvwxyz -,éã")


@pytest.fixture(scope="module")
def shipped() -> Tokenizer:
    return Tokenizer.load(Path("models/en-de/2/tokenizer.json"))


def spelled(text: str, characters: str | frozenset[str] = LATIN) -> str:
    return Spelling(frozenset(characters).__contains__)(text).text


@pytest.mark.parametrize("mark", [*LAYOUT, ZWNJ, ZWJ, EMOJI])
def test_a_mark_that_nobody_sees_is_no_part_of_a_word(mark: str, shipped: Tokenizer) -> None:
    word = f"{mark}cof{mark}fee{mark}"
    assert shipped.encode(word) == shipped.encode("coffee")
    assert shipped.encode_batch([word]) == [shipped.encode("coffee")]
    assert byte_tokenizer().encode("\u00adcof\u00adfee") == byte_tokenizer().encode("coffee")


@pytest.mark.parametrize("mark", LAYOUT)
def test_marks_of_layout_are_left_out_even_if_the_vocabulary_has_them(mark: str) -> None:
    assert spelled(f"cof{mark}fee", LATIN | {mark}) == "coffee"


@pytest.mark.parametrize(
    "text", [f"می{ZWNJ}خواهم", f"क्{ZWJ}ष", f"👩{ZWJ}🔬", f"❤{EMOJI}", "ខ្ញុំ\u200bស្រលាញ់"]
)
def test_joiners_and_borders_stay_where_the_vocabulary_has_them(text: str) -> None:
    assert spelled(text, text) == text
    joiners = {ZWNJ, ZWJ, EMOJI, "\u200b"}
    without = "".join(character for character in text if character not in joiners)
    assert spelled(text, without) == without


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cafe\u0301", "café"),
        ("ﬁlm ﬂow oﬀer", "film flow offer"),
        ("ｆｉｌｍ，ｙｅｓ", "film,yes"),
        ("𝐟𝐢𝐥𝐦 𝒻", "film f"),
        ("ten\u00a0kilo\u3000grams\u2009", "ten kilo grams "),
        ("e\u2011mail", "e-mail"),
    ],
)
def test_what_the_vocabulary_lacks_is_spelled_with_what_it_has(text: str, expected: str) -> None:
    assert spelled(text) == expected
    held = (LATIN | {*text}) - {"é"}
    assert spelled(text, held) == text, "nothing that the vocabulary has is changed"


def test_korean_letters_of_a_file_name_are_composed() -> None:
    assert spelled(unicodedata.normalize("NFD", "안녕 각"), "안녕각 ") == "안녕 각"


def test_a_letter_that_no_character_stands_for_keeps_its_marks() -> None:
    assert spelled("x\u0301e\u0327\u0301") == "x\u0301e\u0327\u0301"


@pytest.mark.parametrize(
    "text",
    [
        "Café, naïve “yes” … ½ m² №1 😀 Ж 中，文！",
        "e\u0316\u0301",
        "①②",
        "\u0958",
        "\ud800",
        "\tx\n",
    ],
)
def test_all_else_stays_as_it_is(text: str) -> None:
    assert spelled(text, frozenset(text)) == text
    assert spelled("½m²①☕ж😀“…”") == "½m²①☕ж😀“…”"


@given(st.text(st.characters(exclude_categories=["Cn"]), max_size=40))
def test_each_character_comes_from_its_place(text: str) -> None:
    result = Spelling(LATIN.__contains__)(text)
    places = [result.span(at, at + 1) for at in range(len(result.text))]
    assert places == sorted(places)
    for (begin, end), character in zip(places, result.text, strict=True):
        original = text[begin:end]
        assert character in original or character in unicodedata.normalize(
            "NFKC", original
        ).replace("\u2010", "-")
    first, last = result.span(0, 0), result.span(len(result.text), len(result.text))
    assert 0 <= first[0] <= last[0] <= len(text)


@given(st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=40))
def test_a_text_is_spelled_once(text: str) -> None:
    once = spelled(text)
    assert spelled(once) == once or not unicodedata.is_normalized("NFC", once)


def test_tokens_have_their_places_in_the_text_as_it_was_sent(shipped: Tokenizer) -> None:
    text = "\ufeffThe cof\u00adfee of Cafe\u0301 \ufb01lm"
    ids, offsets = shipped.pieces(text)
    words = dict(zip(shipped.source.tokens(ids), (text[slice(*at)] for at in offsets), strict=True))
    assert ids == shipped.encode("The coffee of Café film")[:-1]
    assert words["▁coffee"] == " cof\u00adfee"
    assert words["é"] == "e\u0301"
    assert offsets[-1][1] == len(text)


def test_a_target_is_what_the_model_shall_write(shipped: Tokenizer) -> None:
    text = "Kaf\u00adfee"
    ids = shipped.encode_target(text)
    assert shipped.pieces(text, is_target=True).ids == ids[:-1]
    assert shipped.decode(ids) == text


def test_what_the_tokenizer_changes_by_itself_is_left_to_it() -> None:
    vocabulary = {token: id_ for id_, token in enumerate([PAD, BOS, EOS, UNK, "fi", "x", "lm"])}
    raw = tokenizers.Tokenizer(models.WordLevel(vocabulary, UNK))
    raw.normalizer = normalizers.Sequence(
        [normalizers.Replace("ﬁ", "x"), normalizers.Replace("\u200d", "")]
    )
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.decoder = decoders.WordPiece()
    tokenizer = Tokenizer(raw)
    assert tokenizer.encode("ﬁ") == tokenizer.encode("x")
    assert tokenizer.spelled("ﬁ\u200d").text == "ﬁ\u200d"
