"""Pictures of position schemes, computed by :mod:`seqserve_model.positions`."""

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from seqserve.errors import OptionError
from seqserve_model.config import PositionScheme, TransformerConfig
from seqserve_model.positions import (
    AlibiPositions,
    LearnedPositions,
    Positions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    T5Positions,
    distances,
    make_positions,
)
from seqserve_model.transformer import Transformer
from seqserve_plot.picture import ANGLE, SIGN, grid, heat_map


@torch.no_grad()
def draw_scheme(scheme: PositionScheme, length: int, width: int, heads: int) -> Figure:
    """Draws a scheme as the network computes it, for ``length`` tokens."""
    if scheme is PositionScheme.LEARNED:
        raise OptionError("positions: training makes learned positions; name a run with --trained")
    config = TransformerConfig(
        width=width,
        heads=heads,
        positions=scheme,
        max_source_length=length,
        max_target_length=length,
    )
    encoder = make_positions(config, layers=1, causal=False)
    decoder = make_positions(config, layers=1, causal=True)
    return _draw(encoder, decoder, length, is_trained=False)


@torch.no_grad()
def draw_trained(model: Transformer, length: int) -> Figure:
    """Draws the scheme of a trained model, with the numbers that it learned."""
    config = model.config
    length = min(length, max(config.max_source_length, config.max_target_length))
    return _draw(model.encoder_positions, model.decoder_positions, length, is_trained=True)


def _draw(encoder: Positions, decoder: Positions, length: int, *, is_trained: bool) -> Figure:
    match encoder:
        case SinusoidalPositions():
            return _added({"": encoder.table[:length]})
        case LearnedPositions():
            assert isinstance(decoder, LearnedPositions)
            return _added(
                {"encoder: ": encoder.table[:length], "decoder: ": decoder.table[:length]}
            )
        case RelativePositions():
            return _relative(encoder, length, is_trained=is_trained)
        case T5Positions():
            stacks = {"encoder": encoder}
            if isinstance(decoder, T5Positions):  # a recurrent decoder has none
                stacks["decoder"] = decoder
            return _t5(stacks, length, is_trained=is_trained)
        case RotaryPositions():
            return _rotary(encoder, length)
        case AlibiPositions():
            return _alibi(encoder, length)
    raise AssertionError(f"no picture of {type(encoder).__name__}")


def _added(tables: dict[str, Tensor]) -> Figure:
    """Draws what is added to embeddings, ``[length, W]``, and how alike two positions are."""
    figure, axes = grid(len(tables), 2)
    for row, (stack, table) in zip(axes, tables.items(), strict=True):
        size = float(table.abs().max())
        heat_map(
            row[0],
            table,
            f"{stack}added to embeddings",
            x="dimension",
            y="position",
            bounds=(-size, size),
            colours=SIGN,
        )
        heat_map(row[1], table @ table.T, f"{stack}dot products", x="position", y="position")
    return figure


def _relative(positions: RelativePositions, length: int, *, is_trained: bool) -> Figure:
    layers, reach = positions.keys.size(0), positions.distance
    figure, axes = grid(1, 1 + layers * is_trained)
    clipped = distances(length, length, 0).clamp(-reach, reach)
    heat_map(
        axes[0][0],
        clipped,
        f"distances, clipped to ±{reach}",
        x="key",
        y="query",
        bounds=(-reach, reach),
        colours=SIGN,
    )
    for layer, cell in enumerate(axes[0][1:]):
        sizes = positions.keys[layer].norm(dim=-1)  # [H, 2R + 1]
        heat_map(cell, sizes, f"encoder layer {layer}: size of aᴷ", x="distance", y="head")
        cell.set_xticks([0, reach, 2 * reach], [f"-{reach}", "0", f"{reach}"])
    return figure


def _t5(stacks: dict[str, T5Positions], length: int, *, is_trained: bool) -> Figure:
    figure, axes = grid(1 + is_trained, len(stacks))
    for column, (name, positions) in enumerate(stacks.items()):
        ends = range(-length + 1, 1 if positions.causal else length)
        buckets = positions.bucket(torch.tensor(ends))
        steps = axes[0][column]
        steps.plot(ends, buckets, drawstyle="steps-mid")
        steps.set(title=f"{name}: buckets", xlabel="distance, key minus query", ylabel="bucket")
        steps.grid(alpha=0.3)
        if is_trained:
            bias = positions.table[buckets]  # [distances, H]
            below = axes[1][column]
            for head in range(bias.size(1)):
                below.plot(ends, bias[:, head], label=f"head {head}")
            below.set(title=f"{name}: bias", xlabel="distance", ylabel="added to the logits")
            below.legend(fontsize="x-small")
    return figure


def _rotary(positions: RotaryPositions, length: int) -> Figure:
    figure, axes = grid(1, 2)
    cosine, sine = positions.cosine[:length], positions.sine[:length]
    heat_map(
        axes[0][0],
        torch.atan2(sine, cosine),
        "angle of each pair",
        x="pair",
        y="position",
        bounds=(-torch.pi, torch.pi),
        colours=ANGLE,
    )
    axes[0][0].xaxis.set_major_locator(MaxNLocator(integer=True))
    ones = torch.ones(1, 1, length, 2 * cosine.size(1))
    turned = positions.rotate(ones, 0)[0, 0]
    curve = axes[0][1]
    curve.plot(turned @ turned[0] / ones.size(-1))
    curve.set(title="product of two rotated vectors", xlabel="distance")
    curve.set_ylabel("relative to distance 0")
    curve.grid(alpha=0.3)
    return figure


def _alibi(positions: AlibiPositions, length: int) -> Figure:
    figure, axes = grid(1, 2)
    query = torch.zeros(1, positions.slopes.size(0), length, 1)
    bias = positions.bias(0, query, 0, length)  # [H, Q, K]
    for head, slope in enumerate(positions.slopes.tolist()):
        axes[0][0].plot(bias[head, 0], label=f"head {head}: {slope:.3g}")
    axes[0][0].set(title="slopes", xlabel="distance", ylabel="added to the logits")
    axes[0][0].legend(fontsize="x-small")
    heat_map(axes[0][1], bias[0], "head 0, encoder", x="key", y="query")
    return figure
