"""Where lines and sentences end. | stands where a text is divided."""

import re
from dataclasses import dataclass
from itertools import chain

import pytest
import sentencex

from seqserve_server.contract.options import SegmentationMode
from seqserve_server.text.splitting import Segmentation, TextJoiner, split, wrap

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


def joined(source: str, *texts: str, language: str = "en") -> str:
    joint = TextJoiner(source)
    spans = chain.from_iterable(split(source, Segmentation(SegmentationMode.SENTENCES, language)))
    pieces = [joint.add(span, text) for span, text in zip(spans, texts, strict=True)]
    text = "".join(pieces)
    assert joint.length == len(text)
    return text + joint.rest()


def test_white_space_comes_back() -> None:
    assert joined("\n  a.\r\n\r\n\tb.  \n", "x", "yy") == "\n  x\r\n\r\n\tyy  \n"


def test_a_space_is_added_where_the_script_of_the_source_has_none() -> None:
    assert joined("今日は。行こう！", "Hello.", "Let's go!", language="ja") == "Hello. Let's go!"


def test_none_is_added_between_answers_in_such_a_script() -> None:
    assert joined("今日は。行こう！", "你好。", "走吧！", language="ja") == "你好。走吧！"


def test_none_is_added_where_the_script_has_spaces() -> None:
    assert joined("Hello world.This too.", "Hallo.", "Dies.") == "Hallo.Dies."


@pytest.mark.parametrize("empty", [("", "b"), ("a", ""), ("", "")])
def test_an_empty_answer_gets_no_space(empty: tuple[str, str]) -> None:
    assert joined("今日は。行こう！", *empty, language="ja") == "".join(empty)


@dataclass
class Reader:
    """Counts words, or characters."""

    max_tokens: int
    token: str = r"\S+"

    def tokens(self, text: str) -> list[int]:
        return [0] * len(self.ends(text))

    def ends(self, text: str) -> list[int]:
        return [found.end() for found in re.finditer(self.token, text)]


def wrapped(text: str, reader: Reader) -> list[str]:
    parts = list(wrap(text, reader.max_tokens, reader.tokens, reader.ends))
    # The tokens are those of the part by itself.
    assert [tokens for _, tokens in parts] == [
        reader.tokens(text[slice(*span)]) for span, _ in parts
    ]
    return [text[slice(*span)] for span, _ in parts]


def test_after_a_clause() -> None:
    text = "One two three, four five six seven"
    assert wrapped(text, Reader(5)) == ["One two three,", "four five six seven"]


def test_not_after_a_clause_that_ends_early() -> None:
    text = "One, two three four five six seven"
    assert wrapped(text, Reader(5)) == ["One, two three four five", "six seven"]


def test_a_comma_within_a_number_ends_no_clause() -> None:
    assert wrapped("aa bbb 1,234 ccc", Reader(3)) == ["aa bbb 1,234", "ccc"]
    assert wrapped("aa bbb 1,234 ccc", Reader(10, ".")) == ["aa bbb", "1,234 ccc"]


def test_clauses_of_scripts_without_spaces() -> None:
    text = "今日は、とても天気が良いので、散歩に行きます"
    parts = wrapped(text, Reader(16, "."))
    assert parts == ["今日は、とても天気が良いので、", "散歩に行きます"]


def test_at_white_space() -> None:
    assert wrapped("aaaa bbbb cccc dddd", Reader(8, ".")) == ["aaaa", "bbbb", "cccc", "dddd"]


def test_at_the_end_of_a_token() -> None:
    assert wrapped("abcdefghij", Reader(4, ".")) == ["abcd", "efgh", "ij"]


def test_a_character_stays_with_its_marks() -> None:
    assert wrapped("abc\u0301de", Reader(3, ".")) == ["ab", "c\u0301d", "e"]


def test_a_character_of_too_many_tokens_is_a_part() -> None:
    class Twice(Reader):
        def ends(self, text: str) -> list[int]:
            return [end for end in super().ends(text) for _ in range(2)]

    assert wrapped("ab", Twice(1, ".")) == ["a", "b"]


@pytest.mark.parametrize("text", ["a" * 100_000, "ab " * 50_000, " " * 100_000 + "a"])
def test_long_texts_are_not_read_again_and_again(text: str) -> None:
    """Counted in characters that the reader saw."""

    class Counting(Reader):
        seen = 0

        def ends(self, text: str) -> list[int]:
            self.seen += len(text)
            return super().ends(text)

    reader = Counting(32, ".")
    parts = [
        text[slice(*span)] for span, _ in wrap(text, reader.max_tokens, reader.tokens, reader.ends)
    ]
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert max(map(len, parts)) <= 32
    assert reader.seen < 40 * len(text)
