"""Building blocks: feed-forward, normalisation with residual, SSRU, encoder and decoder layer.

Source: Vaswani et al. 2017, §3.1 and §3.3. Each layer gets its attentions as functions, so
that a full pass, a cached step and the exported graphs share these definitions.

SSRU, the simpler simple recurrent unit, keeps a decoder's past in one vector instead of a cache. A
gate decides, for each channel, how much of the past stays and how much of the new token enters::

    f_t = sigmoid(x_t·Wf + bf)
    c_t = f_t·c_{t-1} + (1 - f_t)·(x_t·W)
    y_t = relu(c_t)

Source: Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine
Translation"; Bogoychev et al. 2020, "Edinburgh's Submissions to the 2020 Machine Translation
Efficiency Task".
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqserve_model.attention import MultiHeadAttention
from seqserve_model.config import Activation, DecoderCell, Norm, NormPosition, TransformerConfig

Sublayer = Callable[[Tensor], Tensor]
"""Maps ``[B, T, W]`` to ``[B, T, W]``."""

_gelu_tanh = partial(F.gelu, approximate="tanh")

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: F.relu,
    Activation.GELU: F.gelu,
    Activation.GELU_TANH: _gelu_tanh,
    Activation.SWISH: F.silu,
    Activation.SWIGLU: F.silu,
    Activation.GEGLU: F.gelu,
    Activation.GEGLU_TANH: _gelu_tanh,
}
_GATED = (Activation.SWIGLU, Activation.GEGLU, Activation.GEGLU_TANH)


class FeedForward(nn.Module):
    """Position-wise feed-forward network (§3.3), gated by some activations (Shazeer 2020)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, inner, bias = config.width, config.feed_forward_width, config.projection_bias
        self.activation = _ACTIVATIONS[config.activation]
        self.dropout = nn.Dropout(config.dropout)
        self.gate = nn.Linear(width, inner, bias) if config.activation in _GATED else None
        self.up = nn.Linear(width, inner, bias)
        self.down = nn.Linear(inner, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Maps ``[B, T, W]`` to ``[B, T, W]``."""
        if self.gate is None:
            inner = self.activation(self.up(x))  # [B, T, F]
        else:
            inner = self.activation(self.gate(x)) * self.up(x)  # [B, T, F]
        return self.down(self.dropout(inner))  # type: ignore[no-any-return]


def make_norm(config: TransformerConfig) -> nn.Module:
    """Makes one normalisation layer of width W."""
    if config.norm is Norm.RMS:
        return nn.RMSNorm(config.width, eps=config.norm_epsilon or 1e-6)
    return nn.LayerNorm(config.width, eps=config.norm_epsilon or 1e-5)


def make_attention(config: TransformerConfig) -> MultiHeadAttention:
    """Makes the projections of one attention."""
    return MultiHeadAttention(
        config.width,
        config.heads,
        config.attention_dropout,
        head_size=config.head_size,
        bias=config.projection_bias,
    )


class Residual(nn.Module):
    """A sublayer with its residual sum, dropout and normalisation (§3.1, §5.4)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre = config.norm_position is NormPosition.PRE
        self.norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Returns x + sublayer(norm(x)), or norm(x + sublayer(x)) where the norm comes after."""
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x)))  # type: ignore[no-any-return]
        return self.norm(x + self.dropout(sublayer(x)))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = make_attention(config)
        self.feed_forward = FeedForward(config)
        self.self_residual = Residual(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, attend_source: Sublayer) -> Tensor:
        """Maps ``[B, S, W]`` to ``[B, S, W]``."""
        x = self.self_residual(x, attend_source)
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class SSRU(nn.Module):
    """Reads a target from left to right, in place of the decoder's self-attention."""

    def __init__(self, width: int, max_length: int) -> None:
        """Makes both projections.

        Args:
            width: W, of input, state and output.
            max_length: Tokens that an exported graph can read at once.
        """
        super().__init__()
        self.max_length = max_length
        self.input = nn.Linear(width, width, bias=False)
        self.forget = nn.Linear(width, width)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Reads tokens ``x [B, T, W]`` after ``state [B, W]``.

        Returns:
            Outputs ``[B, T, W]``, and the state ``[B, W]`` after the last token.
        """
        forget = self.forget(x).sigmoid()
        # A graph has as many rounds whatever the length of its input.
        length = self.max_length if torch.compiler.is_exporting() else x.size(1)
        kept, states = scan(forget, (1 - forget) * self.input(x), length)
        states = states + kept * state[:, None]
        return states.relu(), states[:, -1]


def ssru_step(candidate: Tensor, forget: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Reads one token, given both of its projections, each ``[.., W]`` like the state.

    Returns:
        The output and the new state, ``[.., W]`` each.
    """
    state = candidate + forget.sigmoid() * (state - candidate)
    return state.relu(), state


def scan(kept: Tensor, added: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Solves c_t = kept_t·c_{t-1} + added_t from c_0 = 0, for all t at once; ``[B, T, W]`` each.

    Each round joins every token with the result that ends ``reach`` tokens earlier, and doubles the
    reach. Without divisions, the result is as exact as a loop over tokens.

    Source: Hillis and Steele 1986, "Data Parallel Algorithms"; Blelloch 1990, "Prefix Sums and
    Their Applications", §1.4, for recurrences of first order.

    Args:
        length: At least T.

    Returns:
        kept_1·…·kept_t and c_t, for each t; ``[B, T, W]`` each.
    """
    reach = 1
    while reach < length:
        added = added + kept * _earlier(added, reach, 0.0)
        kept = kept * _earlier(kept, reach, 1.0)
        reach *= 2
    return kept, added


def _earlier(x: Tensor, reach: int, before: float) -> Tensor:
    """Moves ``x [B, T, W]`` by some tokens to the right; ``before`` comes in from the left."""
    return F.pad(x, (0, 0, reach, 0), value=before)[:, : x.size(1)]


class DecoderLayer(nn.Module):
    """Causal self-attention or SSRU, attention to the memory, then feed-forward.

    The caller passes the first two as functions and keeps what they remember itself.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        if config.decoder_cell is DecoderCell.SSRU:
            self.ssru = SSRU(config.width, config.max_target_length + 1)
        else:
            self.self_attention = make_attention(config)
        self.cross_attention = make_attention(config)
        self.feed_forward = FeedForward(config)
        self.self_residual = Residual(config)
        self.cross_residual = Residual(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, read_target: Sublayer, attend_memory: Sublayer) -> Tensor:
        """Maps ``[B, T, W]`` to ``[B, T, W]``."""
        x = self.self_residual(x, read_target)
        x = self.cross_residual(x, attend_memory)
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]
