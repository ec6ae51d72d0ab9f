from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from seqserve.command.svg_map import svg_map

SVG = "{http://www.w3.org/2000/svg}"
NAMES = st.lists(
    st.sampled_from(["a", "▁Kaffee", "咖啡", "</s>", 'a "b" & c']), min_size=1, max_size=9
)


def drawn(lines: list[str]) -> ElementTree.Element:
    return ElementTree.fromstring("\n".join(lines))


def test_the_larger_a_weight_the_darker() -> None:
    picture = drawn(svg_map([[0.0, 0.256], [0.744, 1.0000001]], ["a", "b"], ["x", "y"], "title"))
    [cells] = picture.iter(f"{SVG}g")
    assert [cell.get("fill-opacity") for cell in cells] == ["0.00", "0.26", "0.74", "1.00"]
    places = [(cell.get("x"), cell.get("y")) for cell in cells]
    assert [x for x, _ in places[:2]] == [x for x, _ in places[2:]]
    assert places[0][1] == places[1][1] != places[2][1]


@given(NAMES, NAMES)
def test_names_stand_as_they_are_and_within_the_picture(
    rows: list[str], columns: list[str]
) -> None:
    picture = drawn(svg_map([[0.5] * len(columns)] * len(rows), rows, columns, "a <title> & more"))
    texts = [element.text for element in picture.iter(f"{SVG}text")]
    assert texts == ["a <title> & more", *columns, *rows]
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    for cell in picture.iterfind(f"{SVG}g/{SVG}rect"):
        assert float(cell.attrib["x"]) + float(cell.attrib["width"]) <= width
        assert float(cell.attrib["y"]) + float(cell.attrib["height"]) <= height
