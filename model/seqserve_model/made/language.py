"""How a language writes numbers, months and genitives, and the tables beside this file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from seqserve.errors import OptionError

Fields = Mapping[str, str | int | Decimal]
"""What a form is filled with: text as it is, numbers of months and the like, amounts."""


@cache
def table(name: str) -> dict[str, Any]:
    """Reads a TOML file beside this one."""
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def records(name: str) -> list[dict[str, str]]:
    """Reads a TSV file beside this one, each row by the names of its columns."""
    lines = files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
    columns = lines[0].split("\t")
    return [dict(zip_longest(columns, line.split("\t"), fillvalue="")) for line in lines[1:]]


@cache
def rows(name: str, source: str, target: str) -> dict[str, list[tuple[str, str]]]:
    """Reads the columns of two languages from a TSV file beside this one, by the kind of row.

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
    """What follows a name; what follows one that ends in a letter of the third entry."""
    number_words: dict[str, int]
    no_numbers: frozenset[str]

    @classmethod
    def of(cls, code: str) -> Language:
        """Finds a language by its code.

        Raises:
            OptionError: There is no such language.
        """
        languages = table("languages.toml")
        if code not in languages:
            raise OptionError(f"data.made: {code!r} is not one of {', '.join(languages)}")
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
