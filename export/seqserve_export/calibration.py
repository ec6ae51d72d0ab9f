"""Measures the inputs of projections and the caches on real text, to choose their scales."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby, islice

import torch
from torch import Tensor, nn
from tqdm import tqdm

from seqserve_export.options import Scales
from seqserve_export.quantization import Calibration, QuantizedLinear, Range
from seqserve_model.attention import MultiHeadAttention
from seqserve_model.batches import padded
from seqserve_model.decoding import agreement, greedy, score_targets
from seqserve_model.transformer import Transformer

_BATCH_ROWS = 64


class _Observer:
    def __init__(self) -> None:
        self.inputs: dict[str, Range] = {}
        self.caches: dict[str, tuple[Tensor, Tensor]] = {}

    def input(self, name: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        before = self.inputs.get(name, Range(0.0, 0.0))
        low, high = inputs[0].aminmax()
        self.inputs[name] = Range(min(before.low, float(low)), max(before.high, float(high)))

    def cache(self, name: str, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Records keys and values instead of rounding them; returns them unchanged."""
        largest = [part.abs().amax((0, 2)) for part in (key, value)]  # [H, D]
        if name in self.caches:
            largest = list(map(torch.maximum, largest, self.caches[name]))
        self.caches[name] = largest[0], largest[1]
        return key, value


@torch.inference_mode()
def calibrate(
    model: Transformer, sources: Sequence[list[int]], max_decoding_length: int | None = None
) -> Calibration:
    """Decodes sources and records the ranges of projection inputs and caches.

    The whole range is kept: clipping a value costs more than finer steps in a smaller range gain.
    The model, in evaluation mode, is as before when this returns. Sources are token ids, the end
    token last.
    """
    max_length = max_decoding_length or model.config.max_target_length
    targets: dict[int, list[int]] = {}
    observer = _Observer()
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                handle = module.register_forward_pre_hook(partial(observer.input, name))
                hooks.callback(handle.remove)
            elif isinstance(module, MultiHeadAttention):
                module.rounding = partial(observer.cache, name)
                hooks.callback(setattr, module, "rounding", None)
        for batch in tqdm(list(_batches(sources)), desc="calibrating", unit="batch", disable=None):
            rows = padded([sources[index] for index in batch], model.config.pad_id)
            targets.update(zip(batch, greedy(model, *rows, max_length), strict=True))
    return Calibration(
        inputs=observer.inputs,
        caches=observer.caches,
        targets=[targets[index] for index in range(len(sources))],
    )


def _batches(sources: Sequence[list[int]]) -> Iterator[list[int]]:
    """Groups the indices of sources of equal length, so that padding is never recorded."""
    by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for _, group in groupby(by_length, key=lambda index: len(sources[index])):
        while batch := list(islice(group, _BATCH_ROWS)):
            yield batch


_MAX_LOSS = 0.005
"""Share of tokens that static scales, which are faster, may cost more than scales of rows."""
_SENTENCES = 256


def choose_scales(
    model: Transformer, calibration: Calibration, sources: Sequence[list[int]]
) -> tuple[Scales, str]:
    """Compares static scales with scales of rows on the full-precision model's answers.

    Args:
        model: In int8, in evaluation mode. The scales of its inputs change.
        calibration: Of these sources.
        sources: Token ids, the end token last.

    Returns:
        The scales, and the reason for them.
    """
    end = model.config.eos_id
    # The end of a target that reached the limit was not chosen; any token will do to compare.
    targets = [[*target, end] for target in calibration.targets[:_SENTENCES]]
    kept = {}
    for scales in Scales:
        _scale_inputs(model, calibration, scales)
        kept[scales] = agreement(score_targets(model, sources[:_SENTENCES], targets))
    static, row = kept[Scales.STATIC], kept[Scales.ROW]
    chosen = Scales.ROW if row - static > _MAX_LOSS else Scales.STATIC
    reason = f"static scales choose {static:.1%} of fp32's tokens, row scales {row:.1%}"
    return chosen, reason


def _scale_inputs(model: Transformer, calibration: Calibration, scales: Scales) -> None:
    for name, module in model.named_modules():
        if isinstance(module, QuantizedLinear):
            module.scale_inputs(calibration.inputs[name], scales)
