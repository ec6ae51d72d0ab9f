"""Quantities with their units, which another text may have in another unit."""

import re
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import NamedTuple

from seqserve_server.text.quantities.reading import Quantity

_CLOSE = Decimal("0.06")
"""How much of a number may be rounded away."""
_CLOSE_DEGREES = Decimal(2)
# A scale, or what tells more of the unit: million miles, US gallons.
_WORD = re.compile(r"[ -]?[^\W\d_]{1,12}(?=[ -])")


class Measure(NamedTuple):
    """A number with its unit."""

    kind: str
    """Dimension of the unit, such as length."""
    size: Decimal
    """Size of the unit, in the first unit of its kind."""
    number: Decimal

    def equals(self, other: "Measure") -> bool:
        """Returns whether another number is this one in another unit, perhaps rounded."""
        if self.kind != other.kind or self.size == other.size:
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


@cache
def _units() -> list[tuple[str, re.Pattern[str], list[Decimal]]]:
    text = Path(__file__).with_name("units.toml").read_text(encoding="utf-8")
    return [
        (
            kind,
            re.compile("[ \u00a0\u202f-]?(?:" + "|".join(f"({name})" for name in units) + ")"),
            [*units.values()],
        )
        for kind, units in tomllib.loads(text, parse_float=Decimal).items()
    ]


def measures(quantity: Quantity, text: str) -> Iterator[Measure]:
    """Yields what a quantity of a text, in small letters, may be with the unit after it."""
    word = _WORD.match(text, quantity.end)
    places = [quantity.end, *([word.end()] if word else [])]
    numbers = [each for each in quantity.readings if isinstance(each, Decimal)]
    for kind, pattern, sizes in _units():
        found = next((match for place in places if (match := pattern.match(text, place))), None)
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
