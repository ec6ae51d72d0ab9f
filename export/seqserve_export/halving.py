"""fp16: weights and activations of sixteen bits, for GPUs.

On CUDA, ONNX Runtime's attention over caches takes sixteen bits and nothing else, and no biases of
positions. Logits are turned into fp32 at once: masks and log-probabilities are sums with very large
and very small numbers.

Source: ONNX Runtime, contrib_ops/cuda/bert/group_query_attention.cc.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from seqserve.errors import OptionError
from seqserve_export.quantization import precision_of
from seqserve_model.config import DecoderCell, PositionScheme, TransformerConfig
from seqserve_model.transformer import Transformer

_BIASES = {PositionScheme.ALIBI, PositionScheme.T5}
"""Schemes that add a bias to the logits of attention."""


class HalfProjection(nn.Linear):
    """A projection in fp16 whose outputs are fp32."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps fp16 ``[.., W]`` to fp32 ``[.., V]``."""
        return super().forward(x).float()


def halve(model: Transformer) -> Transformer:
    """Returns a copy of a model in fp16; its logits are fp32.

    Raises:
        OptionError: Its positions have no kernel.
    """
    _check_positions(model.config)
    halves = {id(weight): _half(weight) for weight in model.parameters()}
    halved = copy.deepcopy(model, halves).half()
    projection = halved.output_projection
    sizes = projection.in_features, projection.out_features
    half = HalfProjection(*sizes, bias=False, device="meta")
    half.weight = projection.weight
    halved.output_projection = half
    # It may suppress tokens with numbers that fp16 lacks.
    halved.logits_bias = model.logits_bias
    return halved


def _check_positions(config: TransformerConfig) -> None:
    scheme, is_recurrent = config.positions, config.decoder_cell is DecoderCell.SSRU
    # A recurrent decoder has no attention to its own tokens that would need a bias. Relative
    # positions add halves at indices, for which the CPU, where artifacts are proven, has no kernel.
    if scheme is PositionScheme.RELATIVE or (scheme in _BIASES and not is_recurrent):
        raise OptionError(
            f"--precision fp16: ONNX Runtime has no fp16 attention for {scheme.value} positions;"
            " take fp32 or int8"
        )


def _half(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().half(), requires_grad=False)


def dtype_of(model: Transformer) -> torch.dtype:
    """Returns the type of a model's activations."""
    return torch.float16 if precision_of(model) == "fp16" else torch.float32
