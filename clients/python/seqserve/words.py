"""Divides a text into words, and placeholders and addresses, which come back as they are.

Documents are read by it; the server reads texts and glossaries by it.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

MAX_ENTRIES, MAX_WORDS, MAX_CHARACTERS = 10_000, 32, 256
"""Most terms of a glossary, words and signs of a source, and code points of a source or target."""
# Scripts that write no space between words: each character counts as a word.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
)
# Particles follow a Korean word without a space, so an entry may end within a word.
_HANGUL = r"\uac00-\ud7a3"
# The pattern "\w" does not match combining marks, but vowels of many scripts are marks.
_LAST_MARK = 0x1FFFF

_NOT_IN_ADDRESS = r"\s<>()\[\]`*|\\"
_PARENTHESES = rf"\([^{_NOT_IN_ADDRESS}]*\)"
ADDRESS = (
    rf"(?<!\w)(?:(?:https?|ftp)://|www\.)(?:[^{_NOT_IN_ADDRESS}]|{_PARENTHESES})*"
    rf"(?:[^{_NOT_IN_ADDRESS}.,;:!?'\"_~]|{_PARENTHESES})"
    r"|(?<![\w.+-])[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+"
)
"""Addresses of pages and of mail, as a pattern."""
# Sources: printf of C (ISO 9899, 7.21.6.1), with the positions of POSIX and the names of Python;
# str.format; i18next; ICU; Qt; Ruby; Symfony; Chrome's messages.json; references of HTML.
_SIZE = r"(?:\d++|\*)?(?:\.(?:\d++|\*))?(?:hh|ll|[hljztLq])?"
_PRINTF = rf"(?:\d+\$|\([^()\s]+\))?[-+0#']*+{_SIZE}[@A-Za-z]"
PLACEHOLDER = "|".join(
    [
        ADDRESS,
        r"\{{2,3}[^{}]*\}{2,3}",
        r"[$%#]?\{[^{}]*\}",
        r"\$t\([^()]*\)",
        r"\$\w+\$",
        r"%(?:\d+\$)?#@\w+@",
        r"%[A-Za-z_][\w.]{2,}%(?![\w%])",
        rf"(?<!\d)%{_PRINTF}|%{_PRINTF}(?![A-Za-z])",
        r"%L?\d{1,2}|%%",
        r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w+);",
    ]
)
"""Placeholders of programs and addresses, as a pattern without groups; 100%ige has none."""


def has_words(text: str) -> bool:
    """Returns whether a text has a letter: only then is it translated."""
    return any(map(str.isalpha, text))


def words_of(text: str) -> Iterator[re.Match[str]]:
    """Yields the words and signs of a text; no term begins with one whose ``within`` matches."""
    return _pattern().finditer(unicodedata.normalize("NFC", text))


def fault_of_term(source: str, target: str) -> str:
    """Returns what is wrong with the texts of a term; empty if nothing is."""
    for which, text in (("source", source), ("target", target)):
        if not text.strip():
            return f"{which} is empty"
        if len(text) > MAX_CHARACTERS:
            return f"{which} has {len(text)} characters; at most {MAX_CHARACTERS} are allowed"
    if (words := sum(1 for _ in words_of(source))) > MAX_WORDS:
        return f"source has {words} words and signs; at most {MAX_WORDS} are allowed"
    return ""


def entries_of(rows: Iterable[Sequence[str]]) -> dict[str, str]:
    """Returns the targets of a glossary by their sources; empty rows are left out.

    Raises:
        ValueError: A row is no term, or one too many; the message begins with its number.
    """
    entries: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        columns, fault = [column.strip() for column in row], ""
        if not any(columns):
            continue
        if len(columns) != 2:
            fault = f"has {len(columns)} columns, not two, a source and a target"
        elif fault := fault_of_term(*columns):
            fault = f"its {fault}"
        elif entries.setdefault(*columns) != columns[1]:
            fault = f"{columns[0]!r:.80} has another target before"
        elif len(entries) > MAX_ENTRIES:
            fault = f"is one entry too many; a glossary has 1 to {MAX_ENTRIES:,}"
        if fault:
            raise ValueError(f"line {number}: {fault}")
    return entries


@cache
def _pattern() -> re.Pattern[str]:
    characters = map(chr, range(_LAST_MARK + 1))
    marks = "".join(each for each in characters if unicodedata.category(each)[0] == "M")
    alone = f"{_UNSPACED}{_HANGUL}"
    word = rf"(?:[^\W{alone}]++|(?![{alone}])[{marks}])++"
    within = rf"(?P<within>(?<=[{_HANGUL}])[{_HANGUL}])"
    return re.compile(rf"{word}|{within}|[{alone}]|\S")
