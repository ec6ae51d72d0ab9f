"""What digits mean with the marks between them: 1,250.5 or 1.250,5."""

import re
from decimal import Decimal

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
