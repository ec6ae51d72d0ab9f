"""Rounds weights to eight bits, some rows at a time."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

MAX_INT8 = 127
"""-128 is not used, so that the range is symmetric."""
# A row of zeros needs a scale too.
MIN_SCALE = 1e-12
# Numbers of a weight that are rounded or read at a time, and so are in memory several times.
_NUMBERS = 1 << 20
# By which share of itself a weight may differ from the integer that it was rounded to.
_SAME = 1e-5


def quantized_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds a weight ``[N, K]`` to int8 ``[N, K]``, each output channel by its scale ``[N]``.

    CPUs without VNNI multiply eight bits in pairs and add the two products in sixteen, where they
    may not fit. So the scale is also such that no two neighbours of one sign sum to more than 128:
    times 255 that fits, and every CPU computes the same. It costs half a bit or less.

    Rows of a weight that one scale rounded before keep their integers where these fit: a second
    rounding would only add its errors.
    """
    return quantized_rows(weight, _largest)


def quantized_rows(weight: Tensor, largest: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Rounds a weight, each row such that its largest value fits."""
    low, high = weight.aminmax()
    step = (torch.maximum(-low, high) / MAX_INT8).clamp(min=MIN_SCALE)
    # Written in place: joining the parts would take the memory twice.
    integers, scales = torch.empty(weight.shape, dtype=torch.int8), []
    for rows, place in zip(some_rows(weight), some_rows(integers), strict=True):
        rounded, scale = _rounded_rows(rows, step, largest(rows))
        place.copy_(rounded)
        scales.append(scale)
    return integers, torch.cat(scales)


def some_rows(weight: Tensor) -> tuple[Tensor, ...]:
    """Divides a weight, so that few of its numbers are in memory several times."""
    return torch.split(weight, max(1, _NUMBERS // weight.size(1)))


def _rounded_rows(weight: Tensor, step: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds some rows; ``step`` is the scale that may have rounded the whole weight before."""
    steps = weight / step
    is_rounded = ((steps - steps.round()).abs() <= _SAME * steps.abs()).all(1)
    keeps = is_rounded & (largest < (MAX_INT8 + 1.5) * step)
    scale = torch.where(keeps, step, (largest / MAX_INT8).clamp(min=MIN_SCALE))
    return (weight / scale[:, None]).round().to(torch.int8), scale


def _largest(weight: Tensor) -> Tensor:
    """Finds the largest absolute weight, or sum of two neighbours of one sign, of each row."""
    pairs = F.pad(weight, (0, weight.size(1) % 2)).view(weight.size(0), -1, 2)
    positive = pairs.clamp(min=0).sum(2).amax(1)
    negative = -pairs.clamp(max=0).sum(2).amin(1)
    return torch.stack([weight.abs().amax(1), positive, negative]).amax(0)
