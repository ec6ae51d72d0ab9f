"""What a picture shows, read back from its axes."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure


def heat_maps(figure: Figure) -> list[np.ndarray[Any, Any]]:
    """Gives the matrix of each heat map; the bars of their colours are none."""
    maps = [image for axes in figure.axes for image in axes.images]
    return [np.asarray(image.get_array()) for image in maps]


def labels(figure: Figure) -> list[str]:
    lines = [line for axes in figure.axes for line in axes.lines]
    return [str(line.get_label()) for line in lines]
