"""Where a sentence is divided that is too long. The reader counts words, or characters."""

import re
from dataclasses import dataclass

import pytest

from seqserve_server.text.splitting import wrap


@dataclass
class Reader:
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
