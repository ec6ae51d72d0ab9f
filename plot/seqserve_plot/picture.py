"""Pictures: a grid of axes, and its PNG or SVG file, the same bytes at every run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

from seqserve.errors import OptionError
from seqserve.pictures import themed
from seqserve_plot.fonts import DEFAULT, families_for
from seqserve_plot.style import AMOUNT, SETTINGS

Matrix = Any
"""An array ``[R, C]`` of numbers, as numpy or torch has it."""

_COLUMN_WIDTH, _ROW_HEIGHT = 4.2, 3.6
_SUFFIXES = (".png", ".svg")
# Pictures are made in many places, so the style is set for the whole process.
matplotlib.rcParams.update(SETTINGS)


def grid(
    rows: int,
    columns: int,
    title: str = "",
    cell: tuple[float, float] = (_COLUMN_WIDTH, _ROW_HEIGHT),
) -> tuple[Figure, list[list[Axes]]]:
    """Makes a picture of ``rows`` × ``columns`` axes, each of ``cell`` inches; gives both."""
    figure = Figure((cell[0] * columns, cell[1] * rows), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure, figure.subplots(rows, columns, squeeze=False).tolist()


def heat_map(
    axes: Axes,
    matrix: Matrix,
    title: str,
    *,
    x: str = "",
    y: str = "",
    bounds: tuple[float, float] | None = None,
    colours: Colormap = AMOUNT,
    bar: bool = True,
) -> None:
    """Draws a matrix ``[R, C]``, row 0 at the top; ``bounds`` are the values of the end colours."""
    low, high = bounds or (None, None)
    image = axes.imshow(
        np.asarray(matrix),
        aspect="auto",
        cmap=colours,
        vmin=low,
        vmax=high,
        interpolation="nearest",
    )
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    frame(axes)
    if bar:
        add_bar(axes, image)


def frame(axes: Axes) -> None:
    """Draws the frame of a matrix, whose cells may be as light as the ground."""
    axes.spines[:].set_visible(True)


def add_bar(axes: Axes, image: AxesImage, label: str = "") -> None:
    """Shows beside a matrix which colours stand for which numbers."""
    if axes.figure:
        bar = axes.figure.colorbar(image, ax=axes, label=label)
        assert bar.solids is not None, "an image has no contours"
        # Without it, the steps of a transparent colour overlap.
        bar.solids.set(edgecolor="none", rasterized=True)
        bar.outline.set_edgecolor(SETTINGS["axes.edgecolor"])


def name_cells(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Writes the name of each row at the left and of each column below."""
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    axes.set_yticks(range(len(rows)), rows)


def check_name(path: Path) -> None:
    """Refuses a file whose name does not say what kind of picture it is, and a missing folder.

    Raises:
        OptionError: The name ends in neither .png nor .svg, or there is no such folder.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise OptionError(f"--out: {path} must end in {' or '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise OptionError(f"--out: {path.parent} is no folder; make it first")


def save(figure: Figure, path: Path) -> None:
    """Writes a picture as the name of the file says, PNG or SVG.

    Raises:
        FontError: It is a PNG, and no font has a letter of it.
        OptionError: The name says neither, or the file cannot be written.
    """
    check_name(path)
    is_svg = path.suffix.lower() == ".svg"
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    letters = {letter for text in texts for letter in text.get_text()}
    families = [DEFAULT, "sans-serif"] if is_svg else families_for(letters)
    for text in texts:
        text.set_fontfamily(families)
        # Dollars in a token are dollars.
        text.set_parse_math(False)
    metadata: dict[str, Any] = {"Date": None, "Creator": None} if is_svg else {"Software": None}
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # Of an SVG the reader has the fonts; matplotlib only measures its text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        try:
            figure.savefig(path, metadata=metadata, dpi=150)
            if is_svg:
                path.write_text(themed(path.read_text(encoding="utf-8")), encoding="utf-8")
        except OSError as error:
            raise OptionError(f"--out: {path} cannot be written: {error.strerror}") from None
