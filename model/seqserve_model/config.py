"""The shape of a transformer: every choice, its default and its reason."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from seqserve.errors import OptionError

T = TypeVar("T")


class NormPosition(Enum):
    """Where a sublayer is normalised."""

    PRE = "pre"
    """Before it; trains without a long warm-up (Xiong et al. 2020)."""
    POST = "post"
    """After the residual sum, as in the paper (Vaswani et al. 2017, §3.1)."""


class Norm(Enum):
    """How a layer is normalised."""

    LAYER = "layer"
    """Mean and variance (Ba et al. 2016)."""
    RMS = "rms"
    """Root mean square only (Zhang and Sennrich 2019), as in T5."""


class Activation(Enum):
    """Non-linearity of the feed-forward layer."""

    RELU = "relu"
    GELU = "gelu"
    """x·Φ(x), with the error function (Hendrycks and Gimpel 2016)."""
    GELU_TANH = "gelu_tanh"
    """Its approximation by a hyperbolic tangent."""
    SWISH = "swish"
    """x·sigmoid(x), as in Marian."""
    SWIGLU = "swiglu"
    """Gated: swish(x·G)·(x·U) (Shazeer 2020)."""
    GEGLU = "geglu"
    """Gated: gelu(x·G)·(x·U) (Shazeer 2020)."""
    GEGLU_TANH = "geglu_tanh"
    """Gated by the approximation, as in T5 1.1."""


class PositionScheme(Enum):
    """How the model knows the order of its tokens; see :mod:`seqserve_model.positions`."""

    SINUSOIDAL = "sinusoidal"
    MARIAN = "marian"
    LEARNED = "learned"
    RELATIVE = "relative"
    T5 = "t5"
    T5_LAYERS = "t5-layers"
    ROTARY = "rotary"
    ALIBI = "alibi"


class DecoderCell(Enum):
    """How a decoder layer reads the target tokens before its own."""

    ATTENTION = "attention"
    """Self-attention to all of them, as in the paper; its cache grows with the target."""
    SSRU = "ssru"
    """A recurrent unit with one vector of state; see :class:`seqserve_model.layers.SSRU`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """The shape of an encoder-decoder transformer.

    The defaults are the shipped English→German model's, not the paper's: small, pre-norm, one
    vocabulary for both languages.
    """

    vocabulary_size: int = 6144
    """V, tokens of targets; a multiple of 128 keeps the exported argmax quick."""
    source_vocabulary_size: int = 0
    """Tokens of sources, if they have a separate vocabulary; 0 for a joint one."""
    width: int = 256
    """W, d_model of the paper."""
    heads: int = 4
    """H, of each attention."""
    attention_width: int = 0
    """A, of all heads together: each has A / H. 0 for the model's width, as in the paper."""
    feed_forward_width: int = 1024
    """F. Four times the width, as in the paper."""
    decoder_heads: int = 0
    """H of the decoder's attentions; 0 for heads."""
    decoder_attention_width: int = 0
    """A of the decoder's attentions; 0 for attention_width."""
    decoder_feed_forward_width: int = 0
    """F of the decoder; 0 for feed_forward_width."""
    encoder_layers: int = 4
    """Deep: the encoder runs once per request."""
    decoder_layers: int = 2
    """Shallow: the decoder runs once per token (Kasai et al. 2021)."""
    decoder_cell: DecoderCell = DecoderCell.ATTENTION
    """As in the paper."""
    dropout: float = 0.1
    """On embeddings, inside the feed-forward layer and on every sublayer's output (§5.4)."""
    attention_dropout: float = 0.0
    """On attention weights."""
    norm_position: NormPosition = NormPosition.PRE
    """Steadier at a high learning rate."""
    norm: Norm = Norm.LAYER
    """As in the paper."""
    norm_epsilon: float = 0.0
    """Added to the variance; 0 for the usual: 1e-5, or 1e-6 where the norm is rms."""
    embedding_norm: bool = False
    """Whether embeddings are normalised once positions are added, as in BART."""
    projection_bias: bool = True
    """Whether attention and feed-forward add biases; T5 has none."""
    activation: Activation = Activation.RELU
    """As in the paper, and the cheapest."""
    positions: PositionScheme = PositionScheme.SINUSOIDAL
    """As in the paper."""
    relative_distance: int = 16
    """Distances beyond it count as equal (relative positions)."""
    relative_buckets: int = 32
    """Buckets of distances (T5)."""
    relative_bucket_distance: int = 128
    """Distance of the last bucket (T5)."""
    rotary_base: float = 10_000.0
    """Longest wavelength of rotary positions, over 2π."""
    shared_embeddings: bool = True
    """One table for source and target tokens (§3.4)."""
    tied_output: bool = True
    """The output projection is the target embedding (§3.4)."""
    logits_bias: bool = False
    """Whether each token's logit has a bias, as in Marian."""
    scaled_embeddings: bool = True
    """Embeddings are multiplied by √width (§3.4)."""
    zero_start: bool = False
    """Whether the decoder starts from zeros, as in Marian, not from the begin token's embedding."""
    max_source_length: int = 128
    """Tokens, the end token counted."""
    max_target_length: int = 128
    """Tokens, the end token not counted."""
    pad_id: int = 0
    """Fills a batch; never attended to."""
    bos_id: int = 1
    """The token that the decoder reads first."""
    eos_id: int = 2
    """Ends a source and a target."""
    unk_id: int = 3
    """Stands for what the vocabulary lacks."""

    def __post_init__(self) -> None:
        for name in (*_POSITIVE, *_OPTIONAL):
            value, least = getattr(self, name), 0 if name in _OPTIONAL else 1
            if value < least:
                raise OptionError(f"model.{name} is {value}; it must be at least {least}")
        for name in _SHARES:
            if not 0 <= getattr(self, name) < 1:
                raise OptionError(f"model.{name} is {getattr(self, name)}; it must lie in [0, 1)")
        self._check_heads()
        self._check_positions()
        self._check_vocabularies()

    def _check_heads(self) -> None:
        for stack in ("", "decoder_"):
            name, joint = self._first_set(f"{stack}attention_width", "attention_width", "width")
            counted, heads = self._first_set(f"{stack}heads", "heads")
            if joint % heads:
                raise OptionError(
                    f"model.{name} ({joint}) must be a multiple of model.{counted} ({heads})"
                )

    def _first_set(self, *names: str) -> tuple[str, int]:
        return next((name, size) for name in names if (size := getattr(self, name)))

    def _check_positions(self) -> None:
        if self.positions is PositionScheme.MARIAN and (self.width % 2 or self.width < 4):
            raise OptionError(
                f"model.positions: marian needs an even width of at least 4, not {self.width}"
            )
        if self.positions is PositionScheme.ROTARY:
            odd = next((size for size in (self.head_size, self.decoder.head_size) if size % 2), 0)
            if odd:
                raise OptionError(f"model.positions: rotary needs heads of an even size, not {odd}")
            if self.rotary_base <= 1:
                raise OptionError(f"model.rotary_base is {self.rotary_base}; it must exceed 1")
        if self.positions in (PositionScheme.T5, PositionScheme.T5_LAYERS):
            buckets, distance = self.relative_buckets, self.relative_bucket_distance
            if buckets < 4:
                raise OptionError(f"model.relative_buckets is {buckets}; it must be at least 4")
            # The first half of the decoder's buckets hold one distance each.
            if distance <= buckets // 2:
                raise OptionError(
                    f"model.relative_bucket_distance ({distance}) must exceed half of"
                    f" model.relative_buckets ({buckets})"
                )

    def _check_vocabularies(self) -> None:
        if self.shared_embeddings and self.source_tokens != self.vocabulary_size:
            raise OptionError(
                f"model.source_vocabulary_size ({self.source_tokens}) must equal the one of"
                f" targets ({self.vocabulary_size}) if model.shared_embeddings is true"
            )
        checked = [(name, "vocabulary_size") for name in _IDS]
        if self.source_vocabulary_size:
            checked += [(name, "source_vocabulary_size") for name in ("pad_id", "eos_id")]
        for name, vocabulary in checked:
            if not 0 <= getattr(self, name) < getattr(self, vocabulary):
                raise OptionError(
                    f"model.{name} is {getattr(self, name)}; it must be at least 0 and less than "
                    f"model.{vocabulary} ({getattr(self, vocabulary)})"
                )
        # Other ids may coincide: Marian and T5 begin with the padding, BART with the end token.
        if self.eos_id == self.pad_id:
            raise OptionError(f"model.eos_id and model.pad_id are both {self.eos_id}")

    @property
    def head_size(self) -> int:
        """D: width of one attention head of the encoder."""
        return (self.attention_width or self.width) // self.heads

    @property
    def source_tokens(self) -> int:
        """Number of tokens of sources."""
        return self.source_vocabulary_size or self.vocabulary_size

    @property
    def decoder(self) -> TransformerConfig:
        """The same shape, with the decoder's heads and feed-forward width for all layers."""
        own = {name.removeprefix("decoder_"): getattr(self, name) for name in _OF_DECODER}
        values = {name: size for name, size in own.items() if size}
        if not values:
            return self
        unset: dict[str, Any] = dict.fromkeys(_OF_DECODER, 0)
        return dataclasses.replace(self, **(unset | values))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformerConfig:
        """Builds a configuration from plain values, as a TOML or JSON file holds them."""
        return from_plain(cls, "model", values)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values from which :meth:`from_dict` builds the same configuration."""
        return dataclasses.asdict(self, dict_factory=to_plain)


# fmt: off
_POSITIVE = (
    "vocabulary_size", "width", "heads", "feed_forward_width", "encoder_layers", "decoder_layers",
    "relative_distance", "max_source_length", "max_target_length",
)
# fmt: on
_OF_DECODER = ("decoder_heads", "decoder_attention_width", "decoder_feed_forward_width")
_OPTIONAL = ("source_vocabulary_size", "attention_width", *_OF_DECODER)
_SHARES = ("dropout", "attention_dropout", "norm_epsilon")
_IDS = ("pad_id", "bos_id", "eos_id", "unk_id")


def to_plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes the dictionary of a dataclass, enums by their values, for ``dataclasses.asdict``."""
    return {name: value.value if isinstance(value, Enum) else value for name, value in items}


def from_plain(kind: type[T], section: str, values: Mapping[str, Any]) -> T:
    """Builds a dataclass from a section of a TOML or JSON file; fields may have bounds."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    read = {}
    for name, plain in values.items():
        key = f"{section}.{name}"
        if name not in fields:
            raise OptionError(f"{key} is not known; known are {', '.join(fields)}")
        read[name] = value = _value(key, hints[name], plain)
        minimum = fields[name].metadata.get("minimum")
        if minimum is not None and value < minimum:
            raise OptionError(f"{key}: {value} is less than {minimum:g}, the smallest allowed")
        # Written so that it refuses nan too.
        if (most := fields[name].metadata.get("maximum")) is not None and not value <= most:
            raise OptionError(f"{key}: {value} is more than {most:g}, the largest allowed")
    return kind(**read)


def _value(key: str, kind: Any, value: Any) -> Any:
    if issubclass(kind, Enum):
        choices = [member.value for member in kind]
        if value not in choices:
            raise OptionError(f"{key}: {value!r} is not one of {', '.join(choices)}")
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise OptionError(f"{key}: {value!r} is not of type {kind.__name__}")
    return value
