"""Pictures of masks, computed by :mod:`seqserve_model.attention`."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from seqserve_model.attention import causal_mask, padding_mask
from seqserve_plot.picture import grid, heat_map

_CELL = (2.6, 2.8)
_CACHED = "causal, last 2 queries"


def draw(length: int, padding: int) -> Figure:
    """Draws the masks of a row of ``length`` tokens, of which the last ``padding`` are none.

    Blue cells are keys (columns) that a query (row) may see.
    """
    real = padding_mask(torch.tensor([length - padding]), length)[0, 0]  # [1, K]
    causal = causal_mask(length, length)
    pictures = {
        "padding": real.expand(length, length),
        "causal": causal,
        "both": real & causal,
        "cross-attention": real.expand(length + 2, length),
        _CACHED: causal_mask(2, length),
    }
    figure, axes = grid(1, len(pictures), cell=_CELL)
    for cell, (title, mask) in zip(axes[0], pictures.items(), strict=True):
        heat_map(
            cell,
            mask.float(),
            title,
            x="key",
            y="query",
            bounds=(0, 1),
            bar=False,
        )
        cell.set_aspect("equal")
        cell.set_xticks(range(mask.size(1)))
        first = length - mask.size(0) if title == _CACHED else 0
        cell.set_yticks(range(mask.size(0)), map(str, range(first, first + mask.size(0))))
    return figure
