"""Numbers, dates, names and addresses in two languages, from the tables of this folder."""

from __future__ import annotations

import calendar
import random
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from recipes.korean.words import choose_particles

from seqserve_model.data import Pair

HERE = Path(__file__).parent
_SLOT = re.compile(r"\{(\w+?)(\d?)\}")
_PART = re.compile(r"«(\w+)»")
# "p.m." at the end of a sentence ends it.
_SECOND_STOP = re.compile(r"(?<=[ap]\.m\.)\.")
_CHARACTERS = {"d": "0123456789", "x": "0123456789abcdef", "A": "ABCDEFGHKLMNPRSTUVWXZ"}


Fields = Mapping[str, str | int | Decimal]
"""Values of a form: literal text, numbers such as months, and amounts."""


@cache
def table(name: str) -> dict[str, Any]:
    """Reads a TOML file of this folder."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


@cache
def records(name: str) -> list[dict[str, str]]:
    """Reads a TSV file of this folder, each row by the names of its columns."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    columns = lines[0].split("\t")
    return [dict(zip_longest(columns, line.split("\t"), fillvalue="")) for line in lines[1:]]


@cache
def rows(name: str, source: str, target: str) -> dict[str, list[tuple[str, str]]]:
    """Reads the columns of two languages from a TSV file of this folder, by the kind of row.

    Rows that lack one of the two are left out.
    """
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for row in records(name):
        if row.get(source) and row.get(target):
            by_kind.setdefault(row["kind"], []).append((row[source], row[target]))
    return by_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A section of languages.toml."""

    code: str
    thousands: str
    decimal: str
    months: list[str]
    weekdays: list[str]
    halves: list[str]
    genitive: list[str]
    """Suffix of a name; suffix of a name that ends in a letter of the third entry; these
    letters."""
    number_words: dict[str, int]
    no_numbers: frozenset[str]

    @classmethod
    def of(cls, code: str) -> Language:
        """Finds a language by its code."""
        languages = table("languages.toml")
        if code not in languages:
            raise SystemExit(f"{code!r} is not one of {', '.join(languages)}")
        section = {name: text.split() for name, text in languages[code].items()}
        words = {word: number for number, word in enumerate(section.pop("number_words"), start=2)}
        return cls(
            code=code,
            thousands=section.pop("thousands")[0],
            decimal=section.pop("decimal")[0],
            number_words=words,
            no_numbers=frozenset(section.pop("no_numbers")),
            **section,
        )

    def possessive(self, name: str) -> str:
        """Writes the genitive of a name."""
        ending, *other = self.genitive
        if other and name[-1] in other[1]:
            ending = other[0]
        return name + ending

    def field(self, name: str, value: str | int | Decimal) -> str:
        """Writes a field of a form."""
        if isinstance(value, Decimal):
            marks = {",": self.thousands, ".": self.decimal}
            return "".join(marks.get(character, character) for character in f"{value:,}")
        words = {"month": self.months, "weekday": self.weekdays, "half": self.halves}
        return words[name][int(value)] if name in words else str(value)


def fill(template: str, filling: Mapping[str, str]) -> str:
    """Puts values in place of a template's slots, ``{date}``, ``{date2}``."""
    filled = _SLOT.sub(lambda slot: filling[slot[1] + slot[2]], template)
    return _SECOND_STOP.sub("", filled)


class Values:
    """Draws values for two languages from one generator of random numbers."""

    def __init__(self, source: Language, target: Language, draw: random.Random) -> None:
        self._languages = source, target
        self._draw = draw
        self._forms = rows("forms.tsv", source.code, target.code)
        copied = table("copied.toml")
        self._patterns: dict[str, list[str]] = copied["patterns"]
        self._words: list[str] = copied["words"].split()
        self._tlds: list[str] = copied["tlds"].split()
        people = table("names.toml")["people"]
        self._names: dict[str, list[str]] = {kind: text.split() for kind, text in people.items()}

    def pair(self, template: tuple[str, str], sentence: Pair | None = None) -> Pair:
        """Fills the slots of a source and a target alike."""
        source, target = ({"sentence": side} for side in (sentence or ("", "")))
        for kind, number in dict.fromkeys(_SLOT.findall(template[0])):
            if kind != "sentence":
                source[kind + number], target[kind + number] = self.value(kind)
        # Only Korean has particles in two forms.
        return Pair(*map(choose_particles, (fill(template[0], source), fill(template[1], target))))

    def value(self, kind: str) -> tuple[str, str]:
        """Draws a value, as the source and the target write it."""
        if kind in self._forms:
            return self._written(*self._draw.choice(self._forms[kind]))
        if kind in self._patterns:
            text = self.copied(kind)
            return text, text
        if kind == "place":
            name, _, other = self._draw.choice(self._names["place"]).partition("=")
            return name, other or name
        name = self.name(kind)
        return name, name

    def copied(self, kind: str) -> str:
        """Draws a span that no language translates."""
        return _PART.sub(lambda part: self._part(part[1]), self._draw.choice(self._patterns[kind]))

    def name(self, kind: str) -> str:
        """Draws a name: male, female, a family's, a person's, a full one or an invented one."""
        draw, names = self._draw, self._names
        if kind == "person":
            # Two fifths of them are in no list, so that any name is copied, not these alone.
            kind = draw.choice(("male", "female") * 3 + ("invented",) * 4)
        if kind == "full":
            return f"{self.name('person')} {self.name(draw.choice(('family', 'invented')))}"
        if kind == "invented":
            # Of two or three names, so that some are long.
            first, *others = (self._part_of_name() for _ in range(draw.choice((2, 2, 3))))
            rest = (other.lower()[draw.randint(1, 3) :] for other in others)
            return first[: draw.randint(1, 4)] + "".join(rest)
        return draw.choice(names[kind])

    def _part_of_name(self) -> str:
        listed = self._draw.choice([*self._names.values()])
        return self._draw.choice(listed).partition("=")[0]

    def _written(self, source: str, target: str) -> tuple[str, str]:
        fields = self._fields()
        one, other = (
            fill(form, {name: language.field(name, value) for name, value in fields.items()})
            for language, form in zip(self._languages, (source, target), strict=True)
        )
        return one, other

    def _fields(self) -> Fields:
        draw = self._draw
        count = draw.randint(2, 10 ** draw.choice((1, 2, 2, 2, 3, 4, 5, 6)))
        year = draw.choice((draw.randint(1500, 2100), draw.randint(1950, 2035)))
        month, hour = draw.randrange(12), draw.randrange(24)
        day = draw.randint(1, calendar.monthrange(year, month + 1)[1])
        low = draw.randint(1, 90)
        places = draw.choice((1, 1, 2, 3))
        fraction = Decimal(draw.randrange(1, 10 ** (places + draw.randint(0, 4)))).scaleb(-places)
        cents = draw.choice((draw.randint(1, 10_000), draw.randint(1, 10_000_000)))
        return {
            "count": Decimal(count),
            "plain": str(count),
            "fraction": fraction,
            "amount": draw.choice((Decimal(count), Decimal(count), fraction)),
            "cents": Decimal(cents).scaleb(-2),
            "low": str(low),
            "high": str(low + draw.randint(1, 40)),
            "year": str(year),
            "month": month,
            "mm": f"{month + 1:02}",
            "day": str(day),
            "dd": f"{day:02}",
            "ordinal": f"{day}{_ordinal_ending(day)}",
            "weekday": calendar.weekday(year, month + 1, day),
            "H": str(hour),
            "h": str(hour % 12 or 12),
            # Of three ways to write the half of a day.
            "half": hour // 12 + 2 * draw.randrange(3),
            "minute": f"{draw.choice((draw.randrange(60), 5 * draw.randrange(12))):02}",
        }

    def _part(self, name: str) -> str:
        draw = self._draw
        match name.lower():
            case "word":
                word = draw.choice(self._words)
                return {"Word": word.capitalize(), "WORD": word.upper()}.get(name, word)
            case "tld":
                return draw.choice(self._tlds)
            case "n":
                return str(draw.randrange(10 ** draw.randint(1, 3)))
            case "m":
                return str(draw.randint(2, 99))
        return draw.choice(_CHARACTERS[name])


def _ordinal_ending(day: int) -> str:
    return "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
