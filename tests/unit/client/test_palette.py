"""The colours of pictures and of the page."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from seqserve.heat_map import HeatMap
from seqserve.palette import BLUE, COLOURS, GREY, ORANGE, SERIES, style_sheet, themed

DRAWN = sorted(Path("docs").rglob("*.svg"))
[PAGE] = (path for path in Path().glob("*/seqserve_*/*/page/style.css"))


def contrast(one: str, other: str) -> float:
    """Source: WCAG 2.2, relative luminance and contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [byte / 255 for byte in bytes.fromhex(colour[1:])]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("side", [0, 1])
def test_text_is_legible_on_both_grounds(side: int) -> None:
    surface = COLOURS["surface"][side]
    for name in ("ink", "faint", "accent", "warm"):
        assert contrast(COLOURS[name][side], surface) >= 4.5, name
    for colour in (BLUE, ORANGE, GREY, *SERIES):
        assert contrast(colour, surface) >= 2.7, colour
    assert all(one != other for one, other in combinations(SERIES, 2))


def test_a_picture_follows_its_reader() -> None:
    ink = COLOURS["ink"].light
    drawn = themed(f'<svg width="1"><text fill="{ink}">a</text></svg>')
    assert drawn.startswith(f'<svg width="1">\n<style>{style_sheet()}</style><text fill="var(--ink')
    assert "@media (prefers-color-scheme: dark)" in drawn


def test_a_heat_map_follows_its_reader() -> None:
    lines = "\n".join(HeatMap([[1.0]], ["a"], ["b"]).svg("a title"))
    assert style_sheet() in lines
    assert not re.search(r'(fill|stroke)="#', lines)


@pytest.mark.parametrize("path", DRAWN, ids=str)
def test_pictures_of_the_documentation_have_the_style(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert style_sheet() in text
    for colour in set(re.findall(r"#[0-9a-f]{6}\b", text.replace(style_sheet(), ""))):
        assert colour in {BLUE, ORANGE, GREY, *SERIES}, f"{colour} does not follow the reader"


def test_the_page_has_the_same_colours() -> None:
    light, dark = PAGE.read_text(encoding="utf-8").split("@media (prefers-color-scheme: dark)")[:2]
    for name, colour in COLOURS.items():
        for side, sheet in zip(colour, (light, dark), strict=True):
            value = re.search(rf"--{name}: (#\w+);", sheet)
            assert value is None or value[1] in (side, side[:1] + side[1::2]), name
    assert "--accent" in light
