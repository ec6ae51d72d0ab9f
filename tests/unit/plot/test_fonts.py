"""Letters such as Hangul: which font has them, and what is said where none has."""

from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from seqserve_plot.picture import DEFAULT, FontError, families_for

KOREAN = "영화가"


@pytest.fixture
def no_other_font(monkeypatch: pytest.MonkeyPatch) -> None:
    only = [font for font in font_manager.fontManager.ttflist if font.name == DEFAULT]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", only)


def make_font(path: Path, name: str, letters: str) -> None:
    """Writes a font in which every letter is a box."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for point in ((0, 800), (800, 800), (800, 0)):
        pen.lineTo(point)
    pen.closePath()
    box = pen.glyph()
    font = FontBuilder(1000)
    font.setupGlyphOrder([".notdef", "box"])
    font.setupCharacterMap({ord(letter): "box" for letter in letters})
    font.setupGlyf({".notdef": box, "box": box})
    font.setupHorizontalMetrics({".notdef": (900, 0), "box": (900, 0)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": name, "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(path)


@pytest.mark.usefixtures("no_other_font")
def test_a_letter_that_no_font_has_is_named_with_what_to_install() -> None:
    with pytest.raises(FontError, match=r"no font of this machine has 가 영 화; .*fonts-nanum"):
        families_for(f"a{KOREAN}")


@pytest.mark.usefixtures("no_other_font")
def test_a_font_that_has_the_letters_is_found(tmp_path: Path) -> None:
    file = tmp_path / "boxes.ttf"
    make_font(file, "Boxes", KOREAN)
    font_manager.fontManager.addfont(file)
    assert families_for(f"a{KOREAN}\n") == [DEFAULT, "Boxes"]


def test_latin_letters_take_the_usual_font_alone() -> None:
    assert families_for("▁Kaffee schmeckt gut.") == [DEFAULT]
