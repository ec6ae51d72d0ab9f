"""Pictures: a grid of axes, their style and fonts, and a PNG or SVG file.

A picture has the same bytes at every run. Colours of an SVG follow the reader into dark mode.
"""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import numpy as np
from cycler import cycler
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry
from matplotlib.text import Text

from seqserve.errors import OptionError, SeqserveError
from seqserve.pictures import BLUE, COLOURS, GREY, ORANGE, SERIES, themed

Matrix = Any
"""An array ``[R, C]`` of numbers, as numpy or torch has it."""

# Two columns are about as wide as a phone, so that labels stay legible.
_COLUMN_WIDTH, _ROW_HEIGHT = 3.2, 2.9
_SUFFIXES = (".png", ".svg")
DEFAULT = "DejaVu Sans"
"""It comes with matplotlib, so a picture without other letters is the same everywhere."""
# Has a box for every letter there is.
_LAST_RESORT = "Last Resort"
_CLEAR_BLUE, _CLEAR_ORANGE = f"{BLUE}00", f"{ORANGE}00"


def _map(name: str, *stops: tuple[float, str]) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list(f"seqserve-{name}", stops)


AMOUNT = _map("amount", (0, _CLEAR_BLUE), (1, BLUE))
"""Colours for amounts: the ground shows through small ones."""
_AROUND_ZERO = (0.5, _CLEAR_ORANGE), (0.5, _CLEAR_BLUE)
SIGN = _map("sign", (0, ORANGE), *_AROUND_ZERO, (1, BLUE))
"""Colours for negative and positive numbers, with the ground at 0."""
ANGLE = _map("angle", (0, GREY), (0.25, ORANGE), *_AROUND_ZERO, (0.75, BLUE), (1, GREY))
"""Colours for angles: -π and π are the same."""

_INK, _FAINT, _LINE = (COLOURS[name].light for name in ("ink", "faint", "line"))

SETTINGS: Any = {
    "figure.facecolor": COLOURS["surface"].light,
    "savefig.facecolor": COLOURS["surface"].light,
    "axes.facecolor": "none",
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _FAINT,
    "axes.titlecolor": _INK,
    "axes.titlesize": "medium",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=SERIES),
    "figure.titlesize": "medium",
    "grid.color": _LINE,
    "legend.edgecolor": _LINE,
    "legend.facecolor": COLOURS["surface"].light,
    "text.color": _INK,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _FAINT,
    "ytick.labelcolor": _FAINT,
    # Ids of the parts of an SVG follow from it; text stays text, drawn with the reader's fonts.
    "svg.hashsalt": "seqserve",
    "svg.fonttype": "none",
}
"""Settings of matplotlib while a picture is made and saved."""

# Pictures are made in many places, so the style is set for the whole process.
matplotlib.rcParams.update(SETTINGS)


class FontError(SeqserveError):
    """No font of this machine has a letter."""


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
    bar: str | None = "",
) -> None:
    """Draws a matrix ``[R, C]``, row 0 at the top; ``bounds`` are the values of the end colours.

    ``bar`` is the label of the key of colours and numbers next to it, None for no key.
    """
    low, high = bounds or (None, None)
    cells = np.asarray(matrix)
    image = axes.imshow(
        cells, aspect="auto", cmap=colours, vmin=low, vmax=high, interpolation="nearest"
    )
    axes.set(title=title, xlabel=x, ylabel=y)
    # Cells may be as light as the ground.
    axes.spines[:].set_visible(True)
    if bar is not None and axes.figure:
        key = axes.figure.colorbar(image, ax=axes, label=bar)
        assert key.solids is not None, "an image has no contours"
        # Without it, the steps of a transparent colour overlap.
        key.solids.set(edgecolor="none", rasterized=True)
        key.outline.set_edgecolor(SETTINGS["axes.edgecolor"])


def name_cells(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Writes the name of each row at the left and of each column below."""
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    axes.set_yticks(range(len(rows)), rows)


def check_name(path: Path) -> None:
    """Refuses a file whose name does not say what kind of picture it is, and a missing folder."""
    if path.suffix.lower() not in _SUFFIXES:
        raise OptionError(f"--out: {path} must end in {' or '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise OptionError(f"--out: {path.parent} is not a folder; make it first")


def save(figure: Figure, path: Path) -> None:
    """Writes a picture as the name of the file says, PNG or SVG."""
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
        # The reader of an SVG has the fonts; matplotlib only measures its text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        try:
            figure.savefig(path, metadata=metadata, dpi=150)
            if is_svg:
                path.write_text(themed(path.read_text(encoding="utf-8")), encoding="utf-8")
        except OSError as error:
            raise OptionError(f"--out: {path} cannot be written: {error.strerror}") from None


def families_for(letters: Iterable[str]) -> list[str]:
    """Lists the families whose fonts together have all letters, the usual one first.

    Raises:
        FontError: A letter is in no font; the message says what to install.
    """
    missing = {ord(letter) for letter in letters if letter.isprintable()}
    missing -= _letters_of(font_manager.findfont(DEFAULT))
    families = [DEFAULT]
    for entry in _others() if missing else []:
        if covered := missing & _letters_of(entry.fname):
            families.append(entry.name)
            missing -= covered
        if not missing:
            break
    if missing:
        shown = " ".join(chr(code) for code in sorted(missing)[:5])
        raise FontError(
            f"no font of this machine has {shown}; install one that does (for Korean, Chinese and"
            " Japanese: fonts-noto-cjk, for Korean alone fonts-nanum), or name a picture that"
            " ends in .svg, whose text is drawn with the reader's fonts"
        )
    return families


def _others() -> list[FontEntry]:
    # Upright and of the usual weight first, in the same order at every run.
    entries = (
        entry
        for entry in font_manager.fontManager.ttflist
        if not entry.name.startswith(_LAST_RESORT)
    )
    return sorted(
        entries, key=lambda entry: (entry.style != "normal", str(entry.weight) != "400", entry.name)
    )


def _letters_of(path: str) -> set[int]:
    return set(font_manager.get_font(path).get_charmap())
