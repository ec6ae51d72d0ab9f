"""Writes quantities of one language as another one writes them."""

import re
from collections.abc import Iterator, Sequence

from seqserve_server.text.quantities.reading import BETWEEN, Quantity, quantities_in
from seqserve_server.text.quantities.words import COMMA, POINT, date, is_known

_EXCHANGED = str.maketrans(",.", ".,")
# Separators between the parts of a phone number, or of a date in digits.
_WITHIN = re.compile(r"[ ()/.-]{1,2}")
_SIGN = re.compile(r"[#+§]")
# Separators of dates in digits.
_MARKS = {"de": ".", "pl": ".", "nl": "-", **dict.fromkeys(["fr", "es", "it", "pt"], "/")}
_DATE_KINDS = ("day", "month", "year")


def written(
    missing: Sequence[Quantity], text: str, source_language: str, target_language: str
) -> Iterator[str]:
    """Yields the forms in which the translation of a text should have its ``missing`` quantities.

    If a part of a date or of a phone number is missing, the form is the whole.
    """
    places = {place for each in missing for place in range(each.begin, each.end)}
    for group in _groups(quantities_in(text, source_language), text):
        if places.isdisjoint(each.begin for each in group):
            continue
        begin, end = group[0].begin, group[-1].end
        if form := _date(group, text, source_language, target_language):
            yield form
        elif len(group) > 1 or not text[begin].isdigit():
            yield text[begin - bool(_SIGN.match(text, begin - 1)) : end]
        else:
            yield _form(group[0], text, source_language, target_language)


def _groups(quantities: Sequence[Quantity], text: str) -> Iterator[list[Quantity]]:
    group: list[Quantity] = []
    for each in quantities:
        if group and not _belongs(group[-1], each, text):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


def _belongs(one: Quantity, other: Quantity, text: str) -> bool:
    gap = text[one.end : other.begin]
    kinds = {one.kind, other.kind}
    if ("month" in kinds or kinds == {"day", "year"}) and BETWEEN.fullmatch(gap):
        return kinds <= {*_DATE_KINDS}
    return kinds <= {"", "day", "year"} and bool(_WITHIN.fullmatch(gap))


def _date(group: Sequence[Quantity], text: str, source: str, target: str) -> str:
    """Writes a date that the target language writes otherwise; empty if it is none."""
    parts = {each.kind: each for each in group}
    is_in_digits = len(group) == 3 and text[group[0].end] == "/"
    if source == "en" and target in _MARKS and is_in_digits:
        day, month, year = (each.digits for each in group)
        # Month first, unless that is none.
        if int(day) <= 12:
            day, month = month, day
        return _MARKS[target].join([day, month, year])
    if not (is_known(target) and {"day", "month"} <= parts.keys() <= {*_DATE_KINDS}):
        return ""
    number = next(
        (int(each[1:]) for each in map(str, parts["month"].readings) if each[0] == "m"), 0
    )
    year = parts["year"].digits if "year" in parts else ""
    return date(target, parts["day"].digits, number, year) if number else ""


def _form(quantity: Quantity, text: str, source: str, target: str) -> str:
    times = [int(each[1:]) for each in map(str, quantity.readings) if each[0] == "t"]
    if quantity.kind == "time" and times:
        hour, minute = divmod(min(times), 60)
        return f"{hour}:{minute:02}" if minute else str(hour)
    begin = quantity.begin
    own = text[begin : quantity.end]
    # One language has a point before decimals, and the other one a comma.
    if (source in POINT and target in COMMA) or (source in COMMA and target in POINT):
        own = own.translate(_EXCHANGED)
    return text[begin - 1] + own if begin and _SIGN.match(text, begin - 1) else own
