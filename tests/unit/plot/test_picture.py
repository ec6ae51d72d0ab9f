from pathlib import Path

import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from seqserve.errors import OptionError
from seqserve_plot.picture import DEFAULT, FontError, grid, heat_map, name_cells, save


def korean() -> Figure:
    figure, [[axes]] = grid(1, 1, "영화가 재미있다")
    heat_map(axes, [[0.0, 1.0]], "head 0")
    name_cells(axes, ["▁영화가"], ["a", "b"])
    return figure


def latin() -> Figure:
    figure, [[axes]] = grid(1, 1)
    heat_map(axes, [[0.0, 1.0]], "head 0", x="key", y="query")
    return figure


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_second_run_writes_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.{suffix}" for number in range(2)]
    for file in files:
        save(latin(), file)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert first.startswith(b"<?xml" if suffix == "svg" else b"\x89PNG")


def test_an_svg_needs_no_font_for_its_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = [font for font in font_manager.fontManager.ttflist if font.name == DEFAULT]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", only)
    save(korean(), tmp_path / "korean.svg")
    text = (tmp_path / "korean.svg").read_text(encoding="utf-8")
    assert ">영화가 재미있다</text>" in text
    assert ">▁영화가</text>" in text
    with pytest.raises(FontError):
        save(korean(), tmp_path / "korean.png")


def test_dollars_are_dollars(tmp_path: Path) -> None:
    figure, [[axes]] = grid(1, 1)
    name_cells(axes, ["$_$"], ["$5", "\\$"])
    save(figure, tmp_path / "dollars.svg")
    assert ">$_$</text>" in (tmp_path / "dollars.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.pdf", r"must end in \.png or \.svg"), ("a", "must end"), ("no/a.svg", "is not a folder")],
)
def test_a_name_that_cannot_be_written_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"--out: .*{message}"):
        save(latin(), tmp_path / name)
