"""Where lines and sentences end. | stands where a text is divided."""

from itertools import chain

import pytest
import sentencex

from seqserve_server.contract.options import SegmentationMode
from seqserve_server.text.splitting import Segmentation, split

RIGHT = {
    "en": [
        "Dr. Smith paid $3.50 on Jan. 3.| He left at 5 p.m.| It rained.",
        '"Is it late?" she asked.| "Yes," said Tom.',
        "See Fig. 2, p. 14 and e.g. Sec. 3.1.| Mr. and Mrs. Jones agreed.",
        "J. R. R. Tolkien wrote it.| I read it at No. 5 Main St. yesterday.",
        "The U.S. economy grew by 2.5 percent.| Visit www.example.com.| Now!",
        "Wait...| What?| No!",
        "Open Mon.–Fri., 9 a.m.–5 p.m.| See Sect. 4 on max. temp. values.",
    ],
    "de": [
        "Herr Dr. Müller kommt am 3. Oktober um 15.30 Uhr.| Das ist z. B. in Köln.",
        "Siehe Abb. 4 bzw. Kap. 2.| Die Nr. 5 kostet 3,50 €.| Das sind ca. 4 US-Dollar.",
        "„Kommst du?“, fragte er.| „Ja.“| Dann ging sie.",
    ],
    "ko": [
        "안녕하세요.| 저는 3.5킬로미터를 걸었습니다.| 정말요?",
        "김 박사님은 오후 3시에 왔다.| 끝.",
    ],
    "ja": [
        "これはペンです。|それは3.5メートルです。|本当ですか？|はい！",
        "彼は言った。|「行こう！」|そして出かけた。",
    ],
    "es": [
        "El Sr. García pagó 3,50 € en EE. UU. ayer.| ¿Qué hora es?| Son las 8 a. m.| ¡Vámonos!",
        "«¿Vienes?», preguntó.| La Dra. López dijo que sí.",
        "Vea la pág. 14 y el cap. 3.| Ud. puede irse.",
    ],
    "ar": ["ذهب الدكتور أحمد إلى السوق.| هل اشترى شيئا؟| نعم!| اشترى ٣٫٥ كيلو."],
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
