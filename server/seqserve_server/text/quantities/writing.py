"""Writes a quantity of one language as another one writes it."""

from __future__ import annotations

from seqserve_server.text.quantities.reading import COMMA, POINT, Quantity

_EXCHANGED = str.maketrans(",.", ".,")
# Signs before a number that belong to it.
_SIGNS = "#+(§"


def written(quantity: Quantity, text: str, source_language: str, target_language: str) -> str:
    """Returns the form in which the translation of a text should have a quantity of it."""
    begin, end = quantity.begin, quantity.end
    times = [each for each in map(str, quantity.readings) if each[0] == "t"]
    if quantity.kind == "time" and len(times) == 1 and target_language != "en":
        hour, minute = divmod(int(times[0][1:]), 60)
        return f"{hour}:{minute:02}" if minute else str(hour)
    own = text[begin:end]
    if own[:1].isdigit() and _differ(source_language, target_language):
        own = own.translate(_EXCHANGED) if quantity.kind != "day" else own
    if text[max(0, begin - 1) : begin] in tuple(_SIGNS):
        return text[begin - 1] + own
    return own


def _differ(source: str, target: str) -> bool:
    """Tells whether one language has a point before decimals, and the other a comma."""
    return (source in POINT and target in COMMA) or (source in COMMA and target in POINT)
