"""Where lines and sentences end. | stands where a text is divided."""

from itertools import chain

import pytest
import sentencex

from seqserve_server.contract.options import SegmentationMode
from seqserve_server.text.splitting import Segmentation, split

# Others are in sentences.tsv.
RIGHT = {
    "ar": ["ذهب الدكتور أحمد إلى السوق.| هل اشترى شيئا؟| نعم!| اشترى ٣٫٥ كيلو."],
    "ja": [
        "これはペンです。|それは3.5メートルです。|本当ですか？|はい！",
        "彼は言った。|「行こう！」|そして出かけた。",
    ],
}
# What docs/documents.md lists: a newer library that is right about one of them fails here, too.
WRONG = {
    "en": ["Hello world.|This has no space.", "So am I. Tom left."],
    "de": ["Heute ist der 3. Tom kommt."],
    "ko": ['"어디 가요?"| 그가 물었다.', '그는 "네."|라고 말했다.'],
    "ja": ["「はい。」|と言った。", "来ました。|No.| 5です。"],
    "ar": ["د.| أحمد وصل اليوم."],
}


def divided(text: str, mode: str, language: str = "en") -> str:
    spans = chain.from_iterable(split(text, Segmentation(SegmentationMode(mode), language)))
    return "|".join(text[slice(*span)] for span in spans)


@pytest.mark.parametrize(
    ("language", "marked"),
    [
        (code, text)
        for samples in (RIGHT, WRONG)
        for code, texts in samples.items()
        for text in texts
    ],
)
def test_sentences(language: str, marked: str) -> None:
    text = marked.replace("|", "")
    assert divided(text, "sentences", language) == marked.replace("| ", "|")


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("Home | Our shop · Toys", ["Home", "|", "Our shop", "·", "Toys"]),
        ("• Buy milk. It rains.", ["•", "Buy milk.", "It rains."]),
        ("- Are you here? I am.", ["-", "Are you here?", "I am."]),
        ("a|b, -5 and 3 - 2", ["a|b, -5 and 3 - 2"]),
        ("\tName \t\tPrice\tIt is. No.", ["Name", "Price", "It is.", "No."]),
        ("| | a → b", ["|", "|", "a", "→", "b"]),
        ("a {{ b | c }} or `d | e` | f", ["a {{ b | c }} or `d | e`", "|", "f"]),
    ],
)
def test_signs_divide_items(text: str, items: list[str]) -> None:
    parts = chain.from_iterable(split(text, Segmentation(SegmentationMode.SENTENCES)))
    assert [text[slice(*span)] for span in parts] == items


def test_a_line_break_ends_a_sentence() -> None:
    assert divided("It is\nlate. Go\r\nhome.", "sentences") == "It is|late.|Go|home."


def test_lines_hold_sentences() -> None:
    assert divided("It is. Late.\r\nGo\rhome.\u2028Now", "lines") == "It is. Late.|Go|home.|Now"


@pytest.mark.parametrize("mode", ["lines", "sentences"])
def test_blank_lines_are_no_segments(mode: str) -> None:
    assert divided("\n \n a\t\n\n\n b\n\n", mode) == "a|b"
    assert divided(" \n\t", mode) == ""


def test_an_unknown_language_has_the_rules_of_many() -> None:
    assert divided("One. Two.", "sentences", "tlh_Piqd") == "One.|Two."


HOSTILE = {
    "opening quotes": "«",
    "dialogue": "「はい。」",
    "typographic quotes": "“",
    "apostrophes": "'",
    "accents": "e\u0301",
    "spaces": " ",
    "no end": "word ",
    "many ends": "a. ",
    "one word": "x",
}


@pytest.mark.parametrize("repeated", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_work_for_a_line_grows_with_its_length_alone(
    monkeypatch: pytest.MonkeyPatch, repeated: str, language: str
) -> None:
    """The library's time grows with the square of what it gets at once, so that is bounded."""
    lengths: list[int] = []
    segment = sentencex.segment

    def counted(language: str, text: str) -> list[str]:
        lengths.append(len(text))
        return segment(language, text)

    monkeypatch.setattr(sentencex, "segment", counted)
    text = (repeated * 50_000)[:50_000]
    divided_text = divided(text, "sentences", language)
    assert divided_text.replace("|", "").replace(" ", "") == text.replace(" ", "")
    assert max(lengths) <= 2048
    assert sum(lengths) <= 3 * len(text)


def test_a_long_line_has_the_sentences_of_short_ones() -> None:
    sentence = 'He said: "It is 3.5 km. Come." Dr. Smith did not.'
    alone = divided(sentence, "sentences")
    text = " ".join([sentence] * 200)
    assert divided(text, "sentences") == "|".join([alone] * 200)


def test_a_sentence_longer_than_a_piece_is_cut_between_words() -> None:
    text = "word " * 1000 + "end."
    parts = divided(text, "sentences").split("|")
    assert len(parts) > 1 and "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert {word for part in parts for word in part.split()} == {"word", "end."}
