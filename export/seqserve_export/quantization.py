"""Int8 projections and embeddings, as torch modules that compute the same numbers as ONNX Runtime.

Weights are signed, with a scale for each output channel. Inputs are unsigned, with a scale from
calibration on real text, or one for each row; never one for a batch, because then a row would
depend on its neighbours. Products are sums of integers, and so exact.

Sources: Jacob et al. 2018 (integer products and their scales), Wu et al. 2020, "Integer
Quantization for Deep Learning Inference" (scales of channels, calibration).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_export import operators
from seqserve_export.options import Caches, Scales
from seqserve_export.weight_rounding import (
    MAX_INT8,
    MIN_SCALE,
    quantized_rows,
    quantized_weight,
    some_rows,
)
from seqserve_model.attention import MultiHeadAttention
from seqserve_model.transformer import Transformer

_MIDDLE, _MAX_UINT8 = 128, 255
"""Values of an unsigned integer: the zero point of signed inputs, and the maximum."""

# A float32 holds integers up to 2 ** 24, and two adjacent products sum to 255 * 128 at most.
_MAX_EXACT_INPUTS = 2 * 2**24 // (255 * 128)


@dataclass(frozen=True, slots=True)
class Range:
    """Range of a projection's inputs on real text."""

    low: float
    high: float

    @property
    def zero_point(self) -> int:
        """Integer that represents zero: 0 for inputs without negative values."""
        return 0 if self.low >= 0 else _MIDDLE

    @property
    def scale(self) -> float:
        """Value of one integer step."""
        largest = max(-self.low, self.high, MIN_SCALE)
        return largest / (_MAX_UINT8 - self.zero_point)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Ranges of a model's inputs and caches on real text."""

    inputs: dict[str, Range]
    """Input range of each projection, by its name in the model."""
    caches: dict[str, tuple[Tensor, Tensor]]
    """Largest key and value of each channel ``[H, D]``, by the name of a decoder's attention."""
    targets: list[list[int]] = field(default_factory=list)
    """The model's output for each source, without end tokens."""


class QuantizedLinear(nn.Module):
    """A projection K → N in eight bits, which replaces an ``nn.Linear``."""

    weight: Tensor  # int8 [N, K]
    weight_scale: Tensor  # [N]
    bias: Tensor | None  # [N]
    input_scale: Tensor | None  # []; None for a scale of each row

    def __init__(
        self,
        weight: Tensor,
        weight_scale: Tensor,
        bias: Tensor | None,
        input_scale: Tensor | None,
        zero_point: int,
    ) -> None:
        """Takes the stored tensors; the zero point is the integer of an input of zero."""
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", weight_scale)
        self.register_buffer("bias", bias)
        self.register_buffer("input_scale", input_scale)
        self.zero_point = zero_point

    @classmethod
    def of(cls, linear: nn.Linear, inputs: Range, scales: Scales) -> QuantizedLinear:
        """Rounds a projection with inputs in a range."""
        weight, weight_scale = quantized_weight(linear.weight.detach())
        bias = None if linear.bias is None else linear.bias.detach()
        quantized = cls(weight, weight_scale, bias, None, inputs.zero_point)
        quantized.scale_inputs(inputs, scales)
        return quantized

    @classmethod
    def joined(cls, parts: Sequence[QuantizedLinear]) -> QuantizedLinear:
        """Joins projections of one and the same input into one, K → N + N + .."""
        first = parts[0]
        return cls(
            torch.cat([part.weight for part in parts]),
            torch.cat([part.weight_scale for part in parts]),
            joint_bias(parts),
            first.input_scale,
            first.zero_point,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``[.., K]`` to ``[.., N]``; during the export, as nodes of ONNX Runtime."""
        if torch.compiler.is_exporting():
            return self._product(x, self.weight.t(), self.weight_scale)
        scale = self._row_scale(x) if self.input_scale is None else self.input_scale
        integers = ((x / scale).round() + self.zero_point).clamp(0, _MAX_UINT8) - self.zero_point
        exact = torch.float32 if x.size(-1) <= _MAX_EXACT_INPUTS else torch.float64
        integers = integers.to(exact)
        sums = torch.cat([integers @ rows.to(exact).t() for rows in some_rows(self.weight)], -1)
        y = sums.to(x.dtype) * (scale * self.weight_scale)
        return y if self.bias is None else y + self.bias

    def scale_inputs(self, inputs: Range, scales: Scales) -> None:
        """Takes other scales for inputs in the same range."""
        self.input_scale = torch.tensor(inputs.scale) if scales is Scales.STATIC else None

    def divided(self, scale: Tensor) -> QuantizedLinear:
        """Returns the projection whose outputs are in units of ``scale [N]``."""
        bias = None if self.bias is None else self.bias / scale
        return QuantizedLinear(
            self.weight, self.weight_scale / scale, bias, self.input_scale, self.zero_point
        )

    def project_channels(self, x: Tensor, channels: Tensor) -> Tensor:
        """Maps ``[1, B, K]`` to groups of output channels ``[G, C]``, as nodes of ONNX Runtime.

        The result, ``[G, B, C]``, has the numbers of the whole projection, bit for bit.
        """
        assert self.bias is None
        weight = F.embedding(channels, self.weight)  # [G, C, K]
        scale = F.embedding(channels, self.weight_scale[:, None])  # [G, C, 1]
        return self._product(x, weight.transpose(1, 2), scale.transpose(1, 2))

    def _product(self, x: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
        zero = torch.tensor(self.zero_point, dtype=torch.uint8)
        if self.input_scale is not None:
            integers = operators.quantize(x, self.input_scale, zero)
            return operators.integer_product(
                integers, self.input_scale, zero, weight, weight_scale, self.bias
            )
        scale, one = self._row_scale(x), torch.ones(())
        integers = operators.quantize(x / scale, one, zero)
        product = operators.integer_product(integers, one, zero, weight, weight_scale, None)
        return product * scale if self.bias is None else product * scale + self.bias

    def _row_scale(self, x: Tensor) -> Tensor:
        # Counted from the first axis: counted from the last, ONNX Runtime is wrong without rows.
        largest = (x.abs() if self.zero_point else x).amax(x.dim() - 1, keepdim=True)
        return (largest * (1 / (_MAX_UINT8 - self.zero_point))).clamp(min=MIN_SCALE)


class QuantizedEmbedding(nn.Module):
    """An embedding table of V rows in eight bits, which replaces an ``nn.Embedding``."""

    weight: Tensor  # uint8 [V, W], 128 for zero
    weight_scale: Tensor  # [V, 1]

    def __init__(self, embedding: nn.Embedding, factor: float = 1.0) -> None:
        """Rounds a table, each row by its own scale, and multiplies the rows that are looked up."""
        super().__init__()
        # Nothing is summed up, so the scale needs no room for a sum.
        integers, scale = quantized_rows(embedding.weight.detach(), lambda rows: rows.abs().amax(1))
        self.register_buffer("weight", integers.view(torch.uint8).bitwise_xor_(_MIDDLE))
        self.register_buffer("weight_scale", factor * scale[:, None])

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens ``[..]`` to ``[.., W]``; during the export, as a node of ONNX Runtime."""
        if torch.compiler.is_exporting():
            return operators.dequantized_rows(tokens, self.weight, self.weight_scale)
        integers = F.embedding(tokens, self.weight).to(self.weight_scale.dtype) - _MIDDLE
        return integers * F.embedding(tokens, self.weight_scale)


def joint_bias(parts: Sequence[nn.Linear] | Sequence[QuantizedLinear]) -> Tensor | None:
    """Joins the biases of projections, zeros where one has none; None where none has any."""
    present = [part.bias for part in parts if part.bias is not None]
    if not present:
        return None
    biases = []
    for part in parts:
        zeros = torch.zeros(len(part.weight), dtype=present[0].dtype)
        biases.append(zeros if part.bias is None else part.bias)
    return torch.cat(biases)


class RoundedCache(nn.Module):
    """Keys and values rounded to signed integers, each channel by its own scale."""

    key_scale: Tensor  # [1, H, 1, D]
    value_scale: Tensor  # [1, H, 1, D]

    def __init__(self, key: Tensor, value: Tensor) -> None:
        """Takes the largest key and value of each channel on real text, ``[H, D]``."""
        super().__init__()
        for name, largest in (("key_scale", key), ("value_scale", value)):
            scale = (largest / MAX_INT8).clamp(min=MIN_SCALE)
            self.register_buffer(name, scale[None, :, None])

    def forward(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Rounds ``[B, H, K, D]`` each."""
        return _rounded(key, self.key_scale), _rounded(value, self.value_scale)


def _rounded(x: Tensor, scale: Tensor) -> Tensor:
    return (x / scale).round().clamp(-MAX_INT8 - 1, MAX_INT8) * scale


def cache_scales(attention: MultiHeadAttention) -> tuple[Tensor, Tensor] | None:
    """Returns the scales ``[1, H, 1, D]`` of an attention's cache; None if it is not rounded."""
    rounding = attention.rounding
    if not isinstance(rounding, RoundedCache):
        return None
    return rounding.key_scale, rounding.value_scale


def quantize(
    model: Transformer, calibration: Calibration, scales: Scales, caches: Caches
) -> Transformer:
    """Returns a model with every projection and embedding in int8; it shares the rest, in fp32."""
    return quantize_in_place(with_same_weights(model), calibration, scales, caches)


def with_same_weights(model: Transformer) -> Transformer:
    """Copies a model, but not its weights."""
    return copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})


def quantize_in_place(
    model: Transformer, calibration: Calibration, scales: Scales, caches: Caches
) -> Transformer:
    """Rounds every projection and embedding of a model, and returns it.

    Each drops its weight as soon as it has the integers, so that few are in memory as both.
    """
    for name in [name for name, module in model.named_modules() if _is_rounded(module)]:
        model.set_submodule(name, _quantized_module(model, name, calibration, scales))
    model.embedding_scale = 1.0
    if model.config.shared_embeddings:
        model.set_submodule("target_embedding", model.source_embedding)
    if caches is Caches.INT8:
        for name, (key, value) in calibration.caches.items():
            attention = model.get_submodule(name)
            assert isinstance(attention, MultiHeadAttention)
            attention.rounding = RoundedCache(key, value)
    return model


def _is_rounded(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.Embedding)


def _quantized_module(
    model: Transformer, name: str, calibration: Calibration, scales: Scales
) -> nn.Module:
    module = model.get_submodule(name)
    if isinstance(module, nn.Linear):
        return QuantizedLinear.of(module, calibration.inputs[name], scales)
    assert isinstance(module, nn.Embedding)
    return QuantizedEmbedding(module, model.embedding_scale)


def precision_of(model: Transformer) -> str:
    """Names a model's precision, as a manifest does."""
    projection = model.output_projection
    if isinstance(projection, QuantizedLinear):
        return "int8"
    return "fp16" if projection.weight.dtype is torch.float16 else "fp32"
