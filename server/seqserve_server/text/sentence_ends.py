"""Ends of sentences by sentencex, corrected by a table of abbreviations."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import sentencex

from seqserve.language_codes import folded

_TABLE = Path(__file__).with_name("abbreviations.tsv")
_WINDOW_CHARACTERS = 40
"""Characters around a sentence end: more than an abbreviation and its neighbours have."""
_MAX_TOKENS, _MAX_ADVERB_TOKENS = 3, 5
# A letter after it, or what questions of Spanish begin with.
_STOP = re.compile(r"\.\s++(?=[^\W\d_]|[¿¡])")
_WORD = re.compile(r"\w+['’]?")
_ROMAN = re.compile(r"[IVX]{2,}|[VX]")
_INITIALS = re.compile(r"(?:[^\W\d_]\.-?)+")
_ORDINAL = re.compile(r"\d{1,3}")
_PARTS_OF_WORDS = re.compile(r"['’-]")
_MARKS = "\"'“”„«»‹›‘’([§#"
# A text within them is one sentence for sentencex.
_PAIRED = frozenset('"“”„«»‹›()[]')
# These go on without white space after a period: "Dipl.-Ing.", "Mon.–Fri.", "n.º".
_ATTACHED = ("-", "\N{HYPHEN}", "\N{NON-BREAKING HYPHEN}", "\N{EN DASH}", "/", "ª", "º")


class _Next(IntEnum):
    SMALL, NUMBER, OPENER, INITIAL, OTHER = range(5)


# Whether a sentence ends with an abbreviation of a kind, before each of them; None if only
# sentencex may tell. Kinds without a row in the table: letters alone.
_ENDS: Mapping[str, tuple[bool | None, ...]] = {
    "never": (False, False, False, False, False),
    "open": (False, False, True, False, False),
    "number": (False, False, True, None, None),
    "word": (None, False, True, True, True),
    "end": (False, None, True, None, None),
    "capital": (False, False, None, False, False),
    "letter": (False, False, None, False, None),
    "ordinal": (False, None, None, None, None),
}


class _Table(NamedTuple):
    kinds: Mapping[str, str]
    """The kind of each abbreviation."""
    words: Mapping[str, frozenset[str]]
    """The words of each kind."""


def segment(language: str, text: str) -> list[str]:
    """Divides a line after its sentences; its parts together are the line.

    Sentences end by the rules of Wikimedia's sentencex, https://github.com/wikimedia/sentencex,
    corrected where ``abbreviations.tsv`` has the language.
    """
    parts: list[str] = sentencex.segment(language, text)
    table = _tables().get(folded(language).name)
    if table is None:
        return parts
    sentences: list[str] = []
    for part in parts:
        if sentences and _ends(sentences[-1], part, table) is False:
            sentences[-1] += part
        else:
            sentences.append(part)
    return [part for sentence in sentences for part in _divided(sentence, table)]


def _divided(sentence: str, table: _Table) -> Iterator[str]:
    begin = 0
    if _PAIRED.isdisjoint(sentence):
        for match in _STOP.finditer(sentence):
            after = sentence[match.end() : match.end() + _WINDOW_CHARACTERS]
            if _ends(sentence[begin : match.end()], after, table):
                yield sentence[begin : match.end()]
                begin = match.end()
    yield sentence[begin:]


def _ends(before: str, after: str, table: _Table) -> bool | None:
    """Returns whether a sentence ends between two parts of a line; None if the table cannot say."""
    tokens, following = before[-_WINDOW_CHARACTERS:].split(), after[:_WINDOW_CHARACTERS].split()
    if not tokens or not following or not tokens[-1].endswith("."):
        return None
    if before.endswith(".") and after.startswith(_ATTACHED):
        return False
    found = _WORD.search(following[0])
    word = found[0] if found else ""
    kind = _kind(tokens, table)
    if kind == "start":
        first = before[:_WINDOW_CHARACTERS].split(maxsplit=1)[0].lower()
        is_adverb = first in table.words["adverb"]
        is_short = len(before.split(maxsplit=_MAX_ADVERB_TOKENS)) <= _MAX_ADVERB_TOKENS
        kind = "never" if is_adverb and is_short else "number"
    next_ = _next(following[0], word, table)
    if kind == "ordinal" and next_ is _Next.OTHER:
        is_before = tokens[-2:-1] and tokens[-2].lower() in table.words["ordinal"]
        return False if is_before or word.lower() in table.words["counted"] else None
    return _ENDS[kind][next_] if kind else None


def _next(token: str, word: str, table: _Table) -> _Next:
    small = word.lower().replace("’", "'")
    if word[:1].isdigit() or _ROMAN.fullmatch(word):
        return _Next.NUMBER
    if word[:1].islower():
        return _Next.SMALL
    if _INITIALS.fullmatch(token):
        return _Next.INITIAL
    is_opener = not table.words["opener"].isdisjoint((small, small.rstrip("'")))
    return _Next.OPENER if is_opener or token.startswith(("¿", "¡")) else _Next.OTHER


def _kind(tokens: list[str], table: _Table) -> str | None:
    """Returns the kind of the abbreviation at the end of a text; it may have white space."""
    for count in range(_MAX_TOKENS, 0, -1):
        group = tokens[-count:]
        if len(group) == count and all(token.endswith(".") for token in group):
            whole = "".join(group).lstrip(_MARKS)[:-1]
            for name in (whole, _PARTS_OF_WORDS.split(whole)[-1]):
                for form in _forms(name):
                    if form in table.kinds:
                        return table.kinds[form]
    last = tokens[-1].lstrip(_MARKS)
    if _INITIALS.fullmatch(last):
        return "capital" if last[0].isupper() else "letter"
    return "ordinal" if table.words["ordinal"] and _ORDINAL.fullmatch(last[:-1]) else None


def _forms(name: str) -> Iterator[str]:
    yield name
    # A capital alone is an initial.
    if len(name) > 1:
        yield name[0].lower() + name[1:]
        if name.isupper():
            yield from (name.capitalize(), name.lower())


@cache
def _tables() -> dict[str, _Table]:
    rows = [line.split("\t") for line in _TABLE.read_text("utf-8").splitlines() if line[0] != "#"]
    kinds: defaultdict[str, dict[str, str]] = defaultdict(dict)
    words: defaultdict[str, defaultdict[str, frozenset[str]]] = defaultdict(
        lambda: defaultdict(frozenset)
    )
    for language, kind, names in rows:
        if kind in ("opener", "ordinal", "counted", "adverb"):
            words[language][kind] = frozenset(names.lower().split())
        else:
            kinds[language] |= dict.fromkeys(names.split(), kind)
    return {language: _Table(kinds[language], words[language]) for language in kinds}
