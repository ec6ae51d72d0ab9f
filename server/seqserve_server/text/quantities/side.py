"""One of two texts that are compared: its quantities, their units, and its numbers in words."""

import re
import tomllib
from collections.abc import Collection, Iterator
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from seqserve_server.text.quantities.reading import (
    Quantity,
    Reading,
    quantities_in,
    squashed,
)
from seqserve_server.text.quantities.words import (
    decimals_in,
    is_known,
    months,
    numbers_in,
    romans_in,
)

_ARTICLE = re.compile(r"(?<!\w)[Aa]n?(?!\w)")
_MOST_IN_WORDS = 10**15
_HALF = Decimal("0.5")
_HALVES = frozenset([_HALF, Decimal(30)])
_MINUTES = (15, 30, 45)
_FRACTIONS = {
    **dict.fromkeys(map(Decimal, (30, 50)), _HALF),
    **dict.fromkeys(map(Decimal, (15, 25, 45, 75)), Decimal("0.25")),
}
_HALF_BEFORE = ("de", "nl", "pl")
"""Languages in which half three is 2:30."""


class Side:
    """The quantities of one of the two texts, as they are accounted for."""

    def __init__(self, text: str, language: str) -> None:
        self.text, self.language = text, language
        self.left = quantities_in(text, language)

    @cached_property
    def words(self) -> set[Reading]:
        """Numbers in words and months, wherever they are."""
        words: set[Reading] = set(romans_in(self.text))
        if is_known(self.language):
            words.update(numbers_in(self.text, self.language))
            words.update(decimals_in(self.text, self.language))
            if self.language == "en" and _ARTICLE.search(self.text):
                words.add("a")
            names = months(self.language).finditer(self.text.lower())
            words.update(f"m{match.lastindex}" for match in names)
        return words

    @cached_property
    def squashed(self) -> str:
        """The text as it is looked through for codes."""
        return squashed(self.text)

    def is_told(self, quantity: Quantity, other: "Side") -> bool:
        """Returns whether the other text has a quantity of this one in words, or may have it so."""
        readings, words = quantity.readings, other.words
        numbers = [each for each in readings if isinstance(each, Decimal)]
        if quantity.kind in ("day", "month") and not readings.isdisjoint(words):
            return True
        codes = [each[1:] for each in map(str, readings) if each[0] == "#"]
        if any(_has_code(other.squashed, code) for code in codes):
            return True
        if not is_known(other.language):
            return not (numbers or codes) or any(map(_is_round, numbers))
        times = times_of(quantity)
        if quantity.kind == "time" and not (
            _HALVES.isdisjoint(words) or not _HALVES.isdisjoint(self.words) or "30" in self.text
        ):
            # "drei" is told, but not in "halb drei" or "drei Uhr dreißig".
            numbers, times = [], [each for each in times if int(each[1:]) % 60]
        if any(is_time(each, words, other.language) for each in times):
            return True
        unit = self.text[quantity.end : quantity.end + 2].strip(" -").lower()
        is_minutes = unit.startswith("m")
        return any(_is_in_words(each, words, is_minutes=is_minutes) for each in numbers)


def _has_code(text: str, code: str) -> bool:
    begin = text.find(code)
    return begin >= 0 and not text[begin + len(code) : begin + len(code) + 1].isdigit()


def _is_round(number: Decimal) -> bool:
    """Returns whether any language may write a number in words."""
    return number <= 20 or not str(int(number)).rstrip("0")[1:]


def _is_in_words(number: Decimal, words: Collection[Reading], *, is_minutes: bool) -> bool:
    if number in words or (number == 1 and "a" in words):
        return True
    if number > _MOST_IN_WORDS:
        return False
    # "deux ans et demi"
    if number % 1 in _FRACTIONS.values() and {number // 1, number % 1} <= {*words}:
        return True
    # "nineteen eighty-four", "ein Meter fünfzig"; "in the eighties"; "half an hour", "ein Viertel"
    hundreds, rest = divmod(number, 100)
    if rest in words and (hundreds in words or (hundreds > 10 and not rest % 10)):
        return True
    return (is_minutes or number not in _MINUTES) and _FRACTIONS.get(number) in words


def times_of(quantity: Quantity) -> list[str]:
    """Returns the readings of a quantity that are times, such as t930."""
    # An hour alone may be any number.
    return [
        each
        for each in quantity.readings
        if isinstance(each, str)
        and each[0] == "t"
        and (quantity.kind == "time" or int(each[1:]) % 60)
    ]


def is_time(reading: str, words: Collection[Reading], language: str) -> bool:
    """Returns whether words have an hour and what belongs to a time: "halb drei", "ten to three".

    The time is a reading; the words come from a text, in its language.
    """
    hour, minute = divmod(int(reading[1:]), 60)
    hours = {Decimal(hour), Decimal(hour % 12 or 12)}
    if not minute:
        return not hours.isdisjoint(words)
    after = Decimal(hour % 12 + 1)
    if minute == 30 and Decimal(30) not in words:
        told = {after} if language in _HALF_BEFORE else hours
        return _HALF in words and not told.isdisjoint(words)
    minutes = {Decimal(minute), Decimal(60 - minute), abs(Decimal(30 - minute))}
    minutes.add(Decimal("0.25"))
    hours.add(after)
    return not hours.isdisjoint(words) and not minutes.isdisjoint(words)


_CLOSE = Decimal("0.06")
"""How much of a number may be rounded away."""
_CLOSE_DEGREES = Decimal(2)
# A scale, or what tells more of the unit: million miles, US gallons.
_WORD = re.compile(r"[ -]?[^\W\d_]{1,12}(?=[ -])")
_CURRENCY = re.compile(r"(?:[€$£¥]|\b(?:eur|usd|gbp|jpy|chf|pln)) ?\Z")


class Measure(NamedTuple):
    """A number with its unit."""

    kind: str
    """Dimension of the unit, such as length."""
    size: Decimal
    """Size of the unit, in the first unit of its kind."""
    number: Decimal

    def equals(self, other: "Measure") -> bool:
        """Returns whether another number is this one in another unit, perhaps rounded."""
        if self.kind != other.kind or self.kind == "money" or self.size == other.size:
            return False
        value, others = self._value, other._value
        if (self.size / other.size).normalize().as_tuple().digits == (1,):
            return value == others
        if self.kind == "temperature":
            return abs(value - others) <= _CLOSE_DEGREES
        return abs(value - others) <= max(value, others) * _CLOSE

    @property
    def _value(self) -> Decimal:
        if self.kind == "temperature":
            return (self.number - 32) / Decimal("1.8") if self.size > 1 else self.number
        return self.number * self.size


# A Korean particle may follow.
_UNIT_END = r"(?![^\W가-힣])"


@cache
def _units() -> list[tuple[str, re.Pattern[str], list[Decimal]]]:
    text = Path(__file__).with_name("units.toml").read_text(encoding="utf-8")
    return [
        (
            kind,
            re.compile(f"[ \u00a0\u202f-]?(?:({')|('.join(units)}))".replace(r"\b", _UNIT_END)),
            [*units.values()],
        )
        for kind, units in tomllib.loads(text, parse_float=Decimal).items()
    ]


def measures(quantity: Quantity, text: str) -> Iterator[Measure]:
    """Yields what a quantity of a text, in small letters, may be with the unit at it."""
    word = _WORD.match(text, quantity.end)
    before = _CURRENCY.search(text, max(0, quantity.begin - 4), quantity.begin)
    places = [quantity.end, before and before.start(), word and word.end()]
    numbers = [each for each in quantity.readings if isinstance(each, Decimal)]
    for kind, pattern, sizes in _units():
        matches = (pattern.match(text, place) for place in places if place is not None)
        found = next(filter(None, matches), None)
        if found:
            size = Decimal(sizes[(found.lastindex or 1) - 1])
            yield from (Measure(kind, size, number) for number in numbers)


def sizes_in(text: str, kind: str) -> set[Decimal]:
    """Returns the sizes of the units of a kind that a text, in small letters, has."""
    for own, pattern, sizes in _units():
        if own == kind:
            found = pattern.finditer(text)
            return {Decimal(sizes[(match.lastindex or 1) - 1]) for match in found}
    return set()
