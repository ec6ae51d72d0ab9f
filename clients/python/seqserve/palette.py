"""The colours of all pictures and of the page, for readers of light and of dark pages.

An SVG brings a style sheet and asks the reader's browser which of the two is wanted. It paints its
own ground, so that its ink is legible wherever it stands.
"""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """A colour on a light and on a dark ground."""

    light: str
    dark: str


COLOURS = {
    "ground": Colour("#f6f7f9", "#14161a"),
    "surface": Colour("#ffffff", "#1d2026"),
    "ink": Colour("#1a1d23", "#e8eaee"),
    "faint": Colour("#5b6370", "#a0a8b5"),
    "line": Colour("#d3d8e0", "#3a404a"),
    "accent": Colour("#2257bf", "#7aa5ff"),
    "warm": Colour("#a85a12", "#e9a763"),
}
"""What lies below, boxes on it, text, text of less weight, borders, and two that stand out."""

BLUE, ORANGE, GREY = "#4a7fe0", "#d4873b", "#808894"
"""Legible on both grounds, for what cannot follow the reader, such as cells of a picture."""
SERIES = (BLUE, ORANGE, "#2f9e77", "#a274d6", "#cf5f57", GREY)
"""Of lines in one picture, in their order."""


def style_sheet() -> str:
    """Returns the CSS that an SVG needs to use ``var(--ink)`` and the others."""
    light, dark = (
        " ".join(f"--{name}: {colour[side]};" for name, colour in COLOURS.items())
        for side in (0, 1)
    )
    return f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def themed(svg: str) -> str:
    """Lets an SVG that is drawn in the light colours follow its reader."""
    for name, colour in COLOURS.items():
        svg = svg.replace(colour.light, f"var(--{name})")
    begin = svg.index(">", svg.index("<svg")) + 1
    return f"{svg[:begin]}\n<style>{style_sheet()}</style>{svg[begin:]}"
