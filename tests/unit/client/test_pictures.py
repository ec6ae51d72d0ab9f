import re
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.output import width_of
from seqserve.pictures import (
    BLUE,
    COLOURS,
    GREY,
    ORANGE,
    SERIES,
    HeatMap,
    Style,
    style_sheet,
    themed,
)

SVG = "{http://www.w3.org/2000/svg}"
NAMES = st.lists(st.sampled_from(["a", "▁Kaffee", "咖啡", "schmeckt"]), min_size=1, max_size=9)
MARKUP = st.lists(
    st.sampled_from(["a", "▁Kaffee", "咖啡", "</s>", 'a "b" & c']), min_size=1, max_size=9
)


def test_numbers() -> None:
    assert HeatMap([[0.0, 1.0], [0.256, 0.744]], ["a", "bcd"], ["x", "tokens"]).text(
        Style.NUMBERS
    ) == ["       x tokens", "a   0.00   1.00", "bcd 0.26   0.74"]


def test_shades() -> None:
    weights = [[0.0, 0.125, 0.126, 0.5, 1.0]]
    assert HeatMap(weights, ["a"], ["v", "w", "x", "咖", "z"]).text(Style.SHADES) == [
        "   v  w  x 咖  z",
        "a       ░░ ▒▒ ██",
        "",
        "0   ░░▒▒▓▓██ 1",
    ]


def test_colours_end_where_their_cell_ends() -> None:
    (_, row, _, legend) = HeatMap([[0.0, 1.0]], ["a"], ["x", "yyy"]).text(Style.COLOURS)
    assert row == "a \x1b[48;5;16m  \x1b[0m \x1b[48;5;229m   \x1b[0m"
    assert legend.startswith("0 \x1b[48;5;16m  \x1b[0m\x1b[48;5;17m")
    assert legend.endswith("\x1b[48;5;229m  \x1b[0m 1")


@given(NAMES, NAMES, st.sampled_from(Style), st.integers(1, 60), st.data())
def test_every_weight_is_drawn_once_and_fits(
    rows: list[str], columns: list[str], style: Style, width: int, data: st.DataObject
) -> None:
    weights = data.draw(
        st.lists(
            st.lists(st.floats(0, 1), min_size=len(columns), max_size=len(columns)),
            min_size=len(rows),
            max_size=len(rows),
        )
    )
    lines = HeatMap(weights, rows, columns).text(style, width)
    drawn = lines if style is Style.NUMBERS else lines[:-2]
    bare = [re.sub("\x1b[^m]*m", "", line) for line in drawn]
    widest = max(map(width_of, rows)) + 1 + max(4, *map(width_of, columns))
    assert max(map(width_of, bare)) <= max(width, widest)
    height = len(rows) + 2
    headings = bare[::height]
    assert " ".join(headings).split() == columns
    assert [line.split()[0] for line in bare[1:] if line][: len(rows)] == rows
    if style is Style.NUMBERS:
        found = " ".join(bare[1::height]).split()
        assert [cell for cell in found if cell != rows[0]] == [f"{x:.2f}" for x in weights[0]]


@pytest.mark.parametrize("style", Style)
def test_a_weight_above_1_by_rounding_is_drawn_as_1(style: Style) -> None:
    above, one = (HeatMap([[weight]], ["a"], ["x"]).text(style) for weight in (1.0000001, 1.0))
    assert above == one


def drawn(lines: Iterable[str]) -> ElementTree.Element:
    return ElementTree.fromstring("\n".join(lines))


def test_a_larger_weight_has_a_darker_cell() -> None:
    weights = [[0.0, 0.256], [0.744, 1.0000001]]
    [cells] = drawn(HeatMap(weights, ["a", "b"], ["x", "y"]).svg("title")).iter(f"{SVG}g")
    assert [cell.get("fill-opacity") for cell in cells] == ["0.00", "0.26", "0.74", "1.00"]
    places = [(cell.get("x"), cell.get("y")) for cell in cells]
    assert [x for x, _ in places[:2]] == [x for x, _ in places[2:]]
    assert places[0][1] == places[1][1] != places[2][1]


@given(MARKUP, MARKUP)
def test_names_are_escaped_and_cells_in_the_picture(rows: list[str], columns: list[str]) -> None:
    picture = drawn(
        HeatMap([[0.5] * len(columns)] * len(rows), rows, columns).svg("a <title> & more")
    )
    texts = [element.text for element in picture.iter(f"{SVG}text")]
    assert texts == ["a <title> & more", *columns, *rows]
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    for cell in picture.iterfind(f"{SVG}g/{SVG}rect"):
        assert float(cell.attrib["x"]) + float(cell.attrib["width"]) <= width
        assert float(cell.attrib["y"]) + float(cell.attrib["height"]) <= height


DRAWN = sorted(Path("docs").rglob("*.svg"))
PAGE = Path("gateway/seqserve_gateway/page/page.css")


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


def test_pictures_follow_their_reader() -> None:
    ink = COLOURS["ink"].light
    drawn = themed(f'<svg width="1"><text fill="{ink}">a</text></svg>')
    assert drawn.startswith(f'<svg width="1">\n<style>{style_sheet()}</style><text fill="var(--ink')
    assert "@media (prefers-color-scheme: dark)" in drawn
    lines = "\n".join(HeatMap([[1.0]], ["a"], ["b"]).svg("a title"))
    assert style_sheet() in lines and not re.search(r'(fill|stroke)="#', lines)


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
