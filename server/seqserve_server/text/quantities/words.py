"""What numbers mean, in digits with marks and in words, and months; see ``words.toml``."""

import re
import tomllib
from collections.abc import Collection, Iterator
from decimal import Decimal
from functools import cache
from itertools import islice, pairwise, takewhile
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import numeric

_VALUES = [
    *map(Decimal, (*range(20), *range(20, 100, 10), 100, 10**3, 10**6, 10**9, 10**12)),
    *(Decimal("0.5"), Decimal("0.25")),
]
_CLASS = re.compile(r"\[\w+\]")
# Those within brackets stay together.
_ALTERNATIVE = re.compile(r"(?:[^|()]++|\([^()]*\))++")


class _Numerals(NamedTuple):
    pattern: re.Pattern[str]
    """One group for each word."""
    values: list[Decimal]
    """Values of the groups."""
    join: str
    """The word that may be between them."""


@cache
def _table() -> dict[str, Any]:
    text = Path(__file__).with_name("words.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def is_known(language: str) -> bool:
    """Returns whether the words of a language, a code of ISO 639, are known."""
    return language in _table()


@cache
def months(language: str) -> re.Pattern[str]:
    """Returns the names of the months in small letters, a group each, short ones with 3 or 4."""
    groups = []
    for names in _table()[language]["months"].lower().split():
        forms = (f"{name[:3]}(?:{name[3:4]}|{name[3:]})?" for name in names.split("|"))
        groups.append(f"({'|'.join(forms)})")
    return re.compile(rf"(?<!\w)(?:{'|'.join(groups)})(?!\w)")


def date(language: str, day: str, month: int, year: str) -> str:
    """Writes a date; the year may be empty."""
    name = _table()[language]["months"].split()[month - 1].partition("|")[0]
    form: str = _table()[language]["date"][bool(year)]
    return form.format(day=day, month=name, number=month, year=year)


def minutes_before(text: str, hour: int, language: str) -> int:
    """Returns the minutes that words before the place of an hour add to it: half past 7, halb 8."""
    before = f" {text[max(0, hour - _LONGEST_CLOCK) : hour]}".lower()
    clock = _table()[language].get("clock", {}) if is_known(language) else {}
    return next((int(clock[each]) for each in clock if before.endswith(f" {each} ")), 0)


_LONGEST_CLOCK = 14


# What adds to a whole number: 1½, 2 1/2, 2 and a half.
_FRACTION = re.compile(r" ?([½¼¾⅓⅔])| ([1-9])/([2-9])(?![\d/])| (?:and a|und ein) hal[bf]")
_PLACES = Decimal("0.01")


def fraction_at(text: str, place: int) -> tuple[Decimal, int] | None:
    """Returns the fraction that a text has behind a number, and where it ends."""
    match = _FRACTION.match(text, place)
    if match is None:
        return None
    sign, part, whole = match.groups()
    value = Decimal(part or 1) / Decimal(whole or 2)
    return Decimal(numeric(sign) if sign else value).quantize(_PLACES), match.end()


def numbers_in(text: str, language: str) -> Iterator[Decimal]:
    """Yields the numbers that a text has in words: two hundred, zweiundzwanzig, quatre-vingt-dix.

    Where it has "and" between two of them, it may mean their sum or both.
    """
    pattern, values, join = _numerals(language)
    text = text.lower()
    found = [(*match.span(), values[match.lastindex or 0]) for match in pattern.finditer(text)]
    near = {"", "-", " ", "i", join, f" {join}-", f"-{join}-", f"{join} "}
    for joins in (near, {*near, f" {join} ", f" {join} a "}):
        whole, part = Decimal(0), Decimal(0)
        last = -1
        for begin, end, value in found:
            gap = text[last:begin]
            if not (last >= 0 and len(gap) <= _LONGEST_JOIN and _goes_on(part, value, gap, joins)):
                if last >= 0:
                    yield whole + part
                    last = -1
                if text[begin - 1 : begin].isalpha():
                    continue
                whole = part = Decimal(0)
            elif " " in gap:
                yield whole + part
            last = end
            whole, part = _with(value, whole, part)
        if last >= 0:
            yield whole + part


def _with(value: Decimal, whole: Decimal, part: Decimal) -> tuple[Decimal, Decimal]:
    """Adds a word to a number; the part is below a thousand, and may be multiplied yet."""
    if value < 100:
        return whole, part + value
    if value == 100:
        return whole, 100 * (part or Decimal(1))
    if not part and 0 < whole < value:
        # "mil millones"
        return whole * value, Decimal(0)
    return whole + value * (part or Decimal(1)), Decimal(0)


def decimals_in(text: str, language: str) -> Iterator[Decimal]:
    """Yields the decimals that a text has in words: null Komma drei, two point zero five."""
    pattern, values, _ = _numerals(language)
    text = text.lower()
    for match in re.finditer(rf" (?:{_table()[language]['point']}) ", text):
        begin, end = match.span()
        rest = text[end : end + _LONGEST_DECIMAL]
        before = [*numbers_in(text[max(0, begin - _LONGEST_DECIMAL) : begin], language)]
        places, last = "", 0
        for found in pattern.finditer(rest):
            value = values[found.lastindex or 0]
            if value not in range(10) or rest[last : found.start()].strip(" -"):
                break
            places, last = places + str(value), found.end()
        after = {places, *map(str, islice(numbers_in(rest, language), 1))}
        yield from (
            before[-1] + Decimal(f"0.{each}") for each in after if before and each.isdigit()
        )


_LONGEST_DECIMAL = 40


def scale_at(text: str, language: str) -> Decimal:
    """Returns the value of a word that multiplies the number before it, such as million; or 1."""
    scales = [_SCALES[each] for each in takewhile(_SCALES.__contains__, text)]
    if scales or not is_known(language):
        # "천만"
        return Decimal(prod(scales))
    pattern, values, _ = _numerals(language)
    match = pattern.match(text.lower())
    value = values[match.lastindex or 0] if match else Decimal(1)
    return value if value >= _LEAST_SCALE else Decimal(1)


_LEAST_SCALE = 1000
_SCALES = {
    **dict.fromkeys("千천", 1000),
    **dict.fromkeys("万萬만", 10**4),
    **dict.fromkeys("億亿억", 10**8),
}
_LONGEST_JOIN = 12
_LETTERS = "abcdefghijklmnopqrstuvwxyzäöüßéèąćęłńóśźżãñç"


def _goes_on(part: Decimal, value: Decimal, gap: str, joins: Collection[str]) -> bool:
    """Returns whether a value goes on with the number before it."""
    gap = gap.lstrip(_LETTERS) or gap
    if gap not in joins:
        return False
    if value >= 100:
        return part < value
    if value < 1:
        return gap != " "
    rest = part % 100
    if value < 10:
        return not rest % 10 and not 0 < rest < 20
    # "soixante-dix", "fünfundzwanzig"
    return not rest or (rest in (60, 80) and value < 20) or (rest < 10 and gap in _BEFORE_TENS)


_BEFORE_TENS = ("und", "en")


@cache
def _numerals(language: str) -> _Numerals:
    *numerals, join = _table()[language]["numerals"].split()
    words = [
        (len(_CLASS.sub(".", word)), word, value)
        for each, value in zip(numerals, _VALUES, strict=True)
        for word in _ALTERNATIVE.findall(each)
    ]
    # "vierzig" before "vier".
    words.sort(reverse=True)
    pattern = re.compile("|".join(f"({word})" for _, word, _ in words))
    return _Numerals(pattern, [Decimal(0), *(value for _, _, value in words)], join)


def romans_in(text: str) -> Iterator[Decimal]:
    """Yields the values of Roman numerals."""
    for match in _ROMAN.finditer(text):
        values = [_ROMANS[letter] for letter in match[0]]
        signed = (
            -value if value < following else value for value, following in pairwise([*values, 0])
        )
        # "World War I", but not "when I".
        before = text[: match.start()].rstrip()
        if match[0] != "I" or before[before.rfind(" ") + 1 :].istitle():
            yield Decimal(sum(signed))


_ROMAN = re.compile(r"(?<![^\W\d_]|°)(?<!° )[IVXLCDM]{1,8}(?=(?:er?|ème|th)?(?![^\W\d_]))")
_ROMANS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


POINT = frozenset(["en", "ko", "ja", "zh", "he", "th", "hi"])
COMMA = frozenset(["de", "fr", "pt", "it", "nl", "pl", "ru", "uk", "cs", "sv", "da", "fi", "tr"])
"""Languages by the mark before their decimals."""


def values_of(number: str, language: str) -> set[Decimal]:
    """Returns the numbers that digits and marks may mean; none if they are no number."""
    marks = [mark for mark in number if not mark.isdigit()]
    if not marks:
        return {Decimal(number)}
    first, *rest = re.split(r"\D", number)
    last = marks[-1]
    if len(set(marks)) > 1:
        is_number = last in ".," and marks.count(last) == 1 and len(set(marks)) == 2
        if is_number and _is_grouped([first, *rest[:-1]]):
            return {Decimal("".join([first, *rest[:-1]]) + "." + rest[-1])}
        return set()
    if last == ":":
        return set()
    is_grouped = _is_grouped([first, *rest])
    whole: set[Decimal] = {Decimal("".join([first, *rest]))} if is_grouped else set()
    if len(marks) > 1 or last in "' ":
        return whole
    part: set[Decimal] = {Decimal(f"{first}.{rest[0]}")}
    if not is_grouped or language in (POINT if last == "." else COMMA):
        return part
    return whole if language in (COMMA if last == "." else POINT) else whole | part


def _is_grouped(parts: list[str]) -> bool:
    first, *rest = parts
    return 1 <= len(first) <= 3 and first != "0" and all(len(part) == 3 for part in rest)
