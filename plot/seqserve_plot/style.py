"""The style of matplotlib's pictures: quiet frames, and colours that follow the reader."""

from __future__ import annotations

from typing import Any

from cycler import cycler
from matplotlib.colors import LinearSegmentedColormap

from seqserve.pictures import BLUE, COLOURS, GREY, ORANGE, SERIES

_CLEAR_BLUE, _CLEAR_ORANGE = f"{BLUE}00", f"{ORANGE}00"


def _map(name: str, *stops: tuple[float, str]) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list(f"seqserve-{name}", stops)


AMOUNT = _map("amount", (0, _CLEAR_BLUE), (1, BLUE))
"""Of numbers from little to much: the ground shows through where there is little."""
_AROUND_ZERO = (0.5, _CLEAR_ORANGE), (0.5, _CLEAR_BLUE)
SIGN = _map("sign", (0, ORANGE), *_AROUND_ZERO, (1, BLUE))
"""Of negative and positive numbers, with the ground at 0."""
ANGLE = _map("angle", (0, GREY), (0.25, ORANGE), *_AROUND_ZERO, (0.75, BLUE), (1, GREY))
"""Of angles from -π to π, which are the same."""

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
