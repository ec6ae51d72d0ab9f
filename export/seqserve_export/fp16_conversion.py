"""fp16: weights and activations of sixteen bits, for GPUs.

On CUDA, ONNX Runtime's attention over caches takes sixteen bits and nothing else. Logits are turned
into fp32 at once: masks and log-probabilities are sums with very large and very small numbers.

In T5 and its relatives, the sum that runs through all layers outgrows fp16, whose largest number is
65,504. There it stays in fp32, and only what goes into and comes out of each sublayer is fp16.

Source: ONNX Runtime, contrib_ops/cuda/bert/group_query_attention.cc; transformers,
T5PreTrainedModel._keep_in_fp32_modules, which keeps one projection in fp32 for the same reason.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqserve.errors import OptionError
from seqserve_export.quantization import precision_of
from seqserve_model.attention import MultiHeadAttention
from seqserve_model.config import Norm, NormPosition, PositionScheme, TransformerConfig
from seqserve_model.layers import FeedForward, Residual
from seqserve_model.transformer import Transformer

_HEADROOM = 16.0
"""By how much outputs of feed-forward layers may exceed the largest number of fp16. A power of two,
so that scaling rounds nothing."""


class WideProjection(nn.Linear):
    """A projection in fp16 whose outputs are fp32, and may exceed the numbers of fp16."""

    def __init__(self, projection: nn.Linear, headroom: float = 1.0) -> None:
        """Takes over a projection.

        Args:
            projection: At fp16.
            headroom: By how much outputs may exceed the largest number of fp16.
        """
        super().__init__(
            projection.in_features, projection.out_features, projection.bias is not None, "meta"
        )
        self.headroom = headroom
        for name, parameter in projection.named_parameters():
            # As it is, the weight may be the table of embeddings too.
            own = parameter if headroom == 1.0 else _half(parameter / headroom)
            setattr(self, name, own)

    def forward(self, x: Tensor) -> Tensor:
        """Maps fp16 ``[.., W]`` to fp32 ``[.., V]``."""
        wide = super().forward(x).float()
        return wide if self.headroom == 1.0 else wide * self.headroom


class NarrowingNorm(nn.RMSNorm):
    """A norm that reads fp32 and returns fp16."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        """Takes over a norm; its weights become fp32, as its sums are."""
        super().__init__(norm.normalized_shape, norm.eps, device="meta")
        assert norm.weight is not None
        self.weight = nn.Parameter(norm.weight.detach().float(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps fp32 ``[.., W]`` to fp16 ``[.., W]``."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps).half()


class Widening(nn.Module):
    """Turns embeddings into fp32."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps fp16 to fp32 of the same shape."""
        return x.float()


def halve(model: Transformer) -> Transformer:
    """Returns a copy of a model in fp16; its logits are fp32.

    Raises:
        OptionError: Its positions have no kernel.
    """
    if model.config.positions is PositionScheme.RELATIVE:
        # They add halves at indices, for which the CPU, where artifacts are proven, has no kernel.
        raise OptionError(
            "--precision fp16: ONNX Runtime has no fp16 attention for relative positions;"
            " take fp32 or int8"
        )
    halves = {id(weight): _half(weight) for weight in model.parameters()}
    halved = copy.deepcopy(model, halves).half()
    halved.output_projection = WideProjection(halved.output_projection)
    # It may suppress tokens with numbers that fp16 lacks.
    halved.logits_bias = model.logits_bias
    if _outgrows_halves(model.config):
        _widen_residual(halved)
    return halved


def _widen_residual(model: Transformer) -> None:
    model.encoder_embedding_norm = model.decoder_embedding_norm = Widening()
    for norms in (model, *(m for m in model.modules() if isinstance(m, Residual))):
        for name, norm in list(norms.named_children()):
            if isinstance(norm, nn.RMSNorm):
                setattr(norms, name, NarrowingNorm(norm))
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.output = WideProjection(module.output)
        elif isinstance(module, FeedForward):
            module.down = WideProjection(module.down, _HEADROOM)


def _outgrows_halves(config: TransformerConfig) -> bool:
    is_pre = config.norm_position is NormPosition.PRE
    return is_pre and config.norm is Norm.RMS and not config.embedding_norm


def _half(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().half(), requires_grad=False)


def dtype_of(model: Transformer) -> torch.dtype:
    """Returns the type of a model's activations."""
    return torch.float16 if precision_of(model) == "fp16" else torch.float32
