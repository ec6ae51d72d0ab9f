"""What the projections of a model see on real text, from which their scales are chosen."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, islice

import torch
from torch import Tensor, nn
from tqdm import tqdm

from seqserve_export.quantization import Calibration, Range
from seqserve_model.attention import MultiHeadAttention
from seqserve_model.search import greedy, padded
from seqserve_model.transformer import Transformer

_BATCH_ROWS = 64


class _Watch:
    """Remembers the extremes of everything that passes by."""

    def __init__(self) -> None:
        self.inputs: dict[str, Range] = {}
        self.caches: dict[str, tuple[Tensor, Tensor]] = {}

    def input(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Is called before a projection."""
        before = self.inputs.get(name, Range(0.0, 0.0))
        lowest, highest = inputs[0].aminmax()
        self.inputs[name] = Range(
            min(before.lowest, float(lowest)), max(before.highest, float(highest))
        )

    def cache(self, name: str, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Stands for the rounding of a cache; gives keys and values on as they are."""
        largest = [part.abs().amax((0, 2)) for part in (key, value)]  # [H, D]
        if name in self.caches:
            largest = list(map(torch.maximum, largest, self.caches[name]))
        self.caches[name] = largest[0], largest[1]
        return key, value


@torch.inference_mode()
def calibrate(
    model: Transformer, sources: Sequence[list[int]], max_decoding_length: int | None = None
) -> Calibration:
    """Decodes sources and watches what every projection is given and every cache keeps.

    The whole range is kept: to cut a value off costs more than finer steps within a smaller range
    gain.

    Args:
        model: In evaluation mode; it is not changed.
        sources: Token ids of real sources, the end token last.
        max_decoding_length: Most target tokens; the model's own limit where None.
    """
    longest = max_decoding_length or model.config.max_target_length
    watch, watched = _Watch(), copy.deepcopy(model)
    for name, module in watched.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(partial(watch.input, name))
        elif isinstance(module, MultiHeadAttention):
            module.rounding = partial(watch.cache, name)
    for batch in tqdm(list(_batches(sources)), desc="calibrating", unit="batch"):
        source = padded([sources[index] for index in batch], model.config.pad_id)
        greedy(watched, *source, longest)
    return Calibration(inputs=watch.inputs, caches=watch.caches)


def _batches(sources: Sequence[list[int]]) -> Iterator[list[int]]:
    """Gives the indices of sources of one length: what lies in padding is not to be watched."""
    by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for _, group in groupby(by_length, key=lambda index: len(sources[index])):
        yield from map(list, _batched(group, _BATCH_ROWS))


def _batched(indices: Iterator[int], size: int) -> Iterator[tuple[int, ...]]:
    """Gives ``size`` at a time; Python has it from 3.12 on."""
    while batch := tuple(islice(indices, size)):
        yield batch
