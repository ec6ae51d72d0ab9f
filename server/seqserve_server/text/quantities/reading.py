"""Finds the quantities of a text that are written in digits, and what each of them may mean."""

import re
from bisect import bisect
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from seqserve_server.text.quantities.words import (
    COMMA,
    POINT,
    fraction_at,
    is_known,
    minutes_before,
    months,
    scale_at,
    values_of,
)

Reading: TypeAlias = Decimal | str
"""A number; or a code ("#kx7"), a month ("m7"), a time of the day ("t930", in minutes), an hour of
which nothing tells whether it is before noon ("h9")."""


class Quantity(NamedTuple):
    """A number, a part of a date, a time or a code."""

    begin: int
    """Where it begins in its text, in code points."""
    end: int
    """Where it ends."""
    readings: frozenset[Reading]
    """Its possible meanings; quantities with a reading in common are the same."""
    digits: str
    """Its digits, ASCII; empty for a month in words."""
    kind: str = ""
    """What it counts, if the text says so: one of day, month, year, time, money, percent."""


_DIGIT = re.compile(r"\d")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
_SIGNS = str.maketrans("，．：٫٬’\u00a0\u202f₀₁₂₃₄₅₆₇₈₉", ",.:.,'  0123456789")
# Capitals before a number make a code of it; small letters after it are an ending.
_CODE_LETTERS = r"(?:(?<![A-Za-z0-9])([A-Za-z]{1,8}-?))?"
_NUMBER = re.compile(rf"{_CODE_LETTERS}((?:\d+|(?<![\w.])\.\d+)(?:[.,:']\d+)*)([A-Za-z\d]*)")
# Numbers of languages that put a space between thousands.
_SPACED_NUMBER = re.compile(
    rf"{_CODE_LETTERS}(\d{{1,3}}(?: \d{{3}})+(?!\d)(?:,\d+)?|\d+(?:[.,:']\d+)*)([A-Za-z\d]*)"
)
_TIME = re.compile(
    # Not "15 Uhr 20 Leute".
    r"(\d{1,2})(?:[:.]| ?[hH] ?| Uhr (?!\d\d [A-ZÄÖÜ])| heures? | uur |[시時点點时] ?)"
    r"([0-5]\d)(?!\d|[.,:]\d)"
)
_DATE = re.compile(
    r"(\d{1,2})([./-])(\d{1,2})\2(?:\d{4}|\d{2})(?!\d)|\d{4}([/-])\d{1,2}\4\d{1,2}(?!\d)"
)
# A date without a year, in languages whose numbers have commas: 3.10.
_DAY = re.compile(r"(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\.(?!\d)")
# "6 to 8 p.m."
_LATER_HALF = re.compile(
    r" ?(?:to|until|and|[-–]) ?\d\d?(?:[:.]\d\d)? ?([ap])\.? ?m\b", re.IGNORECASE
)
_HALF_OF_DAY = re.compile(r" ?([ap])(?:\. ?m\b|m\b)", re.IGNORECASE)
# "8시" is eight o'clock, "8시간" eight hours.
_UNIT = re.compile(r" ?([%‰€$£¥]|(?!시간|時間|时间)[^\W\d_]{1,15})")
_KINDS = {
    **dict.fromkeys(["%", "percent", "prozent", "procent"], "percent"),
    **dict.fromkeys(["€", "$", "£", "¥", "eur", "usd", "gbp", "chf", "pln", "yen"], "money"),
    **dict.fromkeys(["euro", "euros", "dollar", "dollars", "pounds", "pfund"], "money"),
    **dict.fromkeys(["uhr", "heures", "heure", "uur", "horas", "hora"], "time"),
    **dict.fromkeys(["h", "시", "時", "点", "點", "时"], "time"),
    **dict.fromkeys("월月", "month"),
}
_CURRENCY_SIGNS = ("€", "$", "£", "¥")
_CURRENCIES = frozenset(["EUR", "USD", "GBP", "CHF", "JPY", "PLN", "US", "CA", "AU"])
BETWEEN = re.compile(r"(?:st|nd|rd|th|er|º|\.)?,? ?(?:(?:of|de|the|del|do|di) )?(?:the )?")
"""Text between the parts of a date."""
_LONGEST_BETWEEN = 12
_LONGEST_NUMBER = 24
# Of a code: 0042, 007.
_ZEROS = re.compile(r"0\d\d+")
_YEARS = range(1000, 2101)


def has_digit(text: str) -> bool:
    """Returns whether a text has a digit, of any script."""
    return _DIGIT.search(text) is not None


def quantities_in(text: str, language: str) -> list[Quantity]:
    """Finds the quantities of a text, in order, by the rules of its language, if that is known."""
    plain = text.translate(_SIGNS)
    if not plain.isascii():
        plain = _OTHER_DIGIT.sub(lambda match: str(int(match[0])), plain)
    found = [*_numbers(plain, language)]
    return _with_months(plain, language, found) if found and is_known(language) else found


def _numbers(text: str, language: str) -> Iterator[Quantity]:
    end = 0
    pattern = _NUMBER if language in POINT else _SPACED_NUMBER
    while match := pattern.search(text, end):
        if " " in match[0] and _is_code(match[1] or "", ""):
            # "das X300 649 Euro" is a code and a number.
            match = _NUMBER.match(text, match.start()) or match
        letters, number, ending = match.groups(default="")
        begin, end = match.start(2), match.end()
        is_price = text[max(0, begin - 2) : begin].strip() in _CURRENCY_SIGNS
        if not letters and (date := _date(text, begin, language)):
            end = date.end()
            yield from _parts(text, begin, end, "day")
        elif (
            not (letters or is_price) and (time := _TIME.match(text, begin)) and int(time[1]) <= 24
        ):
            end = time.end()
            yield _time(text, time, language)
        elif len(number) > _LONGEST_NUMBER or _is_code(letters, ending) or _ZEROS.fullmatch(number):
            yield _code(match)
        elif number.isdigit() and (fraction := fraction_at(text, end)):
            part, end = fraction
            value = {Decimal(number) + part}
            yield Quantity(begin, end, frozenset(value), number, _kind_after(text, end))
        elif number.isdigit() and (added := minutes_before(text, begin, language)):
            times = {_minutes(hour, added) for hour in (int(number), int(number) + 12)}
            yield Quantity(begin, end, frozenset(times), number, "time")
        elif number.isdigit() or values_of(number, language):
            yield _number(text, begin, number, letters, ending, language)
        else:
            yield from _parts(text, begin, begin + len(number), "")


def _date(text: str, begin: int, language: str) -> re.Match[str] | None:
    date = _DATE.match(text, begin)
    if date and (
        not date[1] or (max(int(date[1]), int(date[3])) <= 31 and "00" not in date.groups())
    ):
        return date
    return _DAY.match(text, begin) if language in COMMA else None


def _is_code(letters: str, ending: str) -> bool:
    if letters.rstrip("-").isupper() and letters not in _CURRENCIES:
        return True
    return bool(ending) and not (ending.isalpha() and ending.islower())


def _code(match: re.Match[str]) -> Quantity:
    code = match[0]
    if not code.islower():
        # The ending of a plural, as in "3Ds".
        code = code.rstrip("s")
    digits = "".join(filter(str.isdigit, code))
    return Quantity(*match.span(), frozenset(["#" + squashed(code)]), digits)


_SQUASHED = re.compile(r"[\s°.,:'-]+")


def squashed(text: str) -> str:
    """Returns a text in small letters, without what may be between the parts of a code."""
    return _SQUASHED.sub("", text).lower()


def _parts(text: str, begin: int, end: int, kind: str) -> Iterator[Quantity]:
    """Yields the parts of a date, or of what is not a number."""
    for match in re.finditer(r"\d+", text[begin:end]):
        span = begin + match.start(), begin + match.end()
        readings = _of_integer(text, *span, kind)
        yield Quantity(*span, frozenset(readings), match[0], kind if len(match[0]) < 4 else "year")


def _time(text: str, match: re.Match[str], language: str) -> Quantity:
    hour, minute, end = int(match[1]), int(match[2]), match.end()
    readings: set[Reading] = set()
    half = _HALF_OF_DAY.match(text, end)
    if half and 1 <= hour <= 12:
        readings.add(_minutes(hour % 12 + 12 * (half[1] in "pP"), minute))
    else:
        readings.add(_minutes(hour, minute))
        if 0 < hour < 12:
            readings.add(_minutes(hour + 12, minute))
    if text[match.end(1)] == "." and not half:
        readings |= values_of(match[0], language)
    if not minute and not (half and hour == 12):
        readings.add(Decimal(hour))
    may_be_number = not half and text[match.end(1)] == "." and _kind_after(text, end) != "time"
    kind = "" if may_be_number else "time"
    return Quantity(match.start(), end, frozenset(readings), match[1] + match[2], kind)


def _minutes(hour: int, minute: int) -> str:
    return f"t{(60 * hour + minute) % 1440}"


def _number(
    text: str, begin: int, number: str, letters: str, ending: str, language: str
) -> Quantity:
    end = begin + len(number)
    values = values_of(number, language)
    unit = _UNIT.match(text, end)
    kind = _kind_after(text, end)
    before = text[max(0, begin - 4) : begin].strip()
    if before[-1:] in _CURRENCY_SIGNS or before[-3:] in _CURRENCIES:
        kind = "money"
    scale = scale_at(unit[1], language) if unit else Decimal(1)
    if unit and scale == 1000 and (more := _UNIT.match(text, unit.end())):
        # "mil millones"
        scale *= scale_at(more[1], language)
    readings: set[Reading] = {*values} if scale == 1 else {scale * each for each in values}
    if number.isdigit() and len(number) <= 4 and scale == 1:
        readings = _of_integer(text, begin, end, kind)
        if not kind and int(number) in _YEARS:
            kind = "year"
        elif _HALF_OF_DAY.match(text, end):
            kind = "time"
    if letters:
        readings.add("#" + squashed(letters + number + ending))
    return Quantity(begin, end, frozenset(readings), re.sub(r"\D", "", number), kind)


def _kind_after(text: str, end: int) -> str:
    unit = _UNIT.match(text, end)
    if not unit:
        return ""
    # Text after a Chinese character or a Korean syllable belongs to it without a space.
    return _KINDS.get(unit[1].lower(), "") or _KINDS.get(unit[1][0] if unit[1][0] > "~" else "", "")


def _of_integer(text: str, begin: int, end: int, kind: str) -> set[Reading]:
    value = int(text[begin:end])
    half = _HALF_OF_DAY.match(text, end)
    found: set[Reading] = {Decimal(value)}
    if half and 1 <= value <= 12:
        noon = _minutes(value % 12 + 12 * (half[1] in "pP"), 0)
        return {noon} if value == 12 else {noon, Decimal(value)}
    if value <= 12 and (later := _LATER_HALF.match(text, end)):
        found.add(_minutes(value % 12 + 12 * (later[1] in "pP"), 0))
    if value <= 12:
        found.add(f"m{value}" if kind in ("day", "month") else f"h{value}")
    if kind == "time" and value <= 24:
        found |= {_minutes(value, 0), f"h{value % 12}"}
        if value < 12:
            found.add(_minutes(value + 12, 0))
    elif 12 < value <= 24:
        found.add(_minutes(value, 0))
    if end - begin == 2 and (_AFTER_YEAR.match(text, end) or text.endswith(_BEFORE_YEAR, 0, begin)):
        found |= {Decimal(century + value) for century in (1800, 1900, 2000)}
    elif value in _YEARS and not value % 100 and _AFTER_YEAR.match(text, end):
        found.add(Decimal(value // 100 + 1))
    return found


_BEFORE_YEAR = ("/", ".", "-", "'", "années ", "años ", "anos ", "anni ", "jaren ", "lata ")
# "the 90s", "die 90er", "90년대"
_AFTER_YEAR = re.compile(r"'?s\b|ern?\b|년대")


def _with_months(text: str, language: str, numbers: list[Quantity]) -> list[Quantity]:
    """Adds the names of months that are next to a number."""
    found, small = list(numbers), text.lower()
    begins = [number.begin for number in numbers]
    # A capital may have two small letters: "İ".
    for match in months(language).finditer(small) if len(small) == len(text) else ():
        begin, end = match.span()
        if language == "en" and text[begin].islower():
            # "Children under 16 may come."
            continue
        index = bisect(begins, begin)
        for place in range(max(0, index - 1), min(index + 1, len(numbers))):
            number = numbers[place]
            gap = small[number.end : begin] if place < index else small[end : number.begin]
            is_near = len(gap) <= _LONGEST_BETWEEN and BETWEEN.fullmatch(gap)
            if is_near and (number.kind == "year" or len(number.digits) <= 2):
                if number.kind != "year":
                    found[place] = number._replace(kind="day")
                found.append(Quantity(begin, end, frozenset([f"m{match.lastindex}"]), "", "month"))
                break
    return sorted(found)
