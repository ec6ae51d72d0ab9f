"""Pictures of attention: the weights of every layer and head, and the masks."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from seqserve.attention import AttentionResult, AttentionWeights, Kind, parts_of
from seqserve.errors import OptionError
from seqserve.output import width_of
from seqserve_model.attention import causal_mask, padding_mask
from seqserve_plot.picture import grid, heat_map, name_cells

# Sizes in inches: a token's cell, a letter of its name, the title and the margins.
_TOKEN, _LETTER, _REST, _SMALLEST = 0.22, 0.09, 0.5, 1.8
# Narrow enough that labels are legible on a phone.
_MASK, _MASKS_A_ROW = (1.9, 2.1), 3
_CACHED = "causal, last 2 queries"


def draw(result: AttentionResult, kind: Kind) -> Figure:
    """Draws the weights of every layer and head; rows attend to columns."""
    rows, columns, weights = parts_of(result, kind)
    model = f"{result.model}/{result.version}"
    if not weights.layers:
        raise OptionError(f"--kind: {model} has no {kind.value} attention: it is recurrent")
    cell = (
        max(_SMALLEST, _REST + _TOKEN * len(columns)),
        # The names of columns are upright below.
        _REST + _TOKEN * len(rows) + _LETTER * max(map(width_of, columns), default=0),
    )
    figure, axes = grid(
        weights.layers, weights.heads, f"{model}: {kind.value} attention", cell=cell
    )
    for layer, line in enumerate(axes):
        for head, cell_axes in enumerate(line):
            title = f"layer {layer}, head {head}"
            heat_map(cell_axes, weights.of(layer, head), title, bounds=(0, 1), bar=None)
            name_cells(cell_axes, rows if head == 0 else [], columns)
    return figure


def of_artifact(folder: Path, source: str, target: str | None) -> AttentionResult:
    """Computes the attention of a source and its target, by default greedy search's output.

    The graphs are those that a server runs; the text goes in as it is, without the tokens that
    some imported models put around it.
    """
    # Imported here, because the attention that a server gives needs neither.
    from seqserve_server.engine.local_engine import LocalEngine

    with LocalEngine(folder) as artifact:
        tokens, limits = artifact.manifest.tokens, artifact.manifest.limits
        read = artifact.encode(source)
        if target is None:
            written = [*artifact.decode([read])[0].best.token_ids, tokens.eos]
        else:
            written = artifact.tokenizer.encode_target(target)
        if len(written) > limits.max_target_length + 1:
            raise OptionError(
                f"the target has {len(written) - 1} tokens; the model reads at most"
                f" {limits.max_target_length}"
            )
        outputs = artifact.runtime.score(
            np.array([read]),
            np.array([len(read)], np.int32),
            np.array([[tokens.bos, *written]]),
            ["encoder_attention", "decoder_attention", "cross_attention"],
        )
        encoder, decoder, cross = (_weights(array) for array in outputs)
        return AttentionResult(
            model=artifact.manifest.name,
            version=artifact.manifest.version,
            source_tokens=tuple(artifact.tokenizer.source.tokens(read)),
            target_tokens=tuple(artifact.tokenizer.target.tokens(written)),
            encoder=encoder,
            decoder=decoder,
            cross=cross,
        )


def _weights(array: NDArray[np.float32]) -> AttentionWeights:
    layers, _, heads, queries, keys = array.shape  # of one pair
    weights = tuple(array.ravel().tolist())
    return AttentionWeights(layers=layers, heads=heads, queries=queries, keys=keys, weights=weights)


def draw_masks(length: int, padding: int) -> Figure:
    """Draws the masks of a row of ``length`` tokens, of which the last ``padding`` are padding.

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
    rows = -(-len(pictures) // _MASKS_A_ROW)
    figure, axes = grid(rows, _MASKS_A_ROW, cell=_MASK)
    cells = [cell for row in axes for cell in row]
    for unused in cells[len(pictures) :]:
        unused.remove()
    for cell, (title, mask) in zip(cells, pictures.items(), strict=False):
        heat_map(cell, mask.float(), title, x="key", y="query", bounds=(0, 1), bar=None)
        cell.set_aspect("equal")
        cell.set_xticks(range(mask.size(1)))
        first = length - mask.size(0) if title == _CACHED else 0
        cell.set_yticks(range(mask.size(0)), map(str, range(first, first + mask.size(0))))
    return figure
