"""Marian from its own files, and the students of Bergamot in Firefox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.families.m2m100 import sinusoids
from seqserve_import.family import (
    Change,
    Family,
    activation_of,
    end_token,
    with_spare_row,
)
from seqserve_model.config import NormPosition, PositionScheme, TransformerConfig

# fmt: off
_LAYER = {
    "self_attention.query":  "self_{}q",
    "self_attention.key":    "self_{}k",
    "self_attention.value":  "self_{}v",
    "self_attention.output": "self_{}o",
    "self_residual.norm":    "self_Wo_ln_{}",
    "feed_forward.up":       "ffn_{}1",
    "feed_forward.down":     "ffn_{}2",
    "feed_forward_residual.norm": "ffn_ffn_ln_{}",
}
_CROSS = {
    "cross_attention.query":  "context_{}q",
    "cross_attention.key":    "context_{}k",
    "cross_attention.value":  "context_{}v",
    "cross_attention.output": "context_{}o",
    "cross_residual.norm":    "context_Wo_ln_{}",
}
_STACKS = {
    "encoder_embedding_norm": "encoder_emb_ln_{}_pre",
    "decoder_embedding_norm": "decoder_emb_ln_{}_pre",
    "encoder_norm":           "encoder_top_ln_{}",
    "decoder_norm":           "decoder_top_ln_{}",
}
# fmt: on
_PROJECTION = {"weight": "W", "bias": "b"}
_NORM = {"weight": "scale", "bias": "bias"}
_LOGITS_BIAS = "decoder_ff_logit_out_b"

_NORMS = {("", "an", ""): NormPosition.POST, ("n", "a", "n"): NormPosition.PRE}
"""By the operations before, after and above the layers, without dropout, ``d``."""
_SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "input-types": ([], ["sequence"], ["sequence", "sequence"]),
    "lemma-dim-emb": (0,),
    "right-left": (False,),
    "transformer-attention-mask": ("default",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-decoder-dim-ffn": (0,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-disable-position-embeddings": (False,),
    "transformer-ffn-activation": ("relu", "swish"),
    "transformer-ffn-depth": (2,),
    "transformer-no-affine": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-projection": (False,),
    "transformer-pool": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-tied-layers": ([],),
    "transformer-train-position-embeddings": (False,),
    "ulr": (False,),
}
"""The values of settings that are supported; a setting that is missing has the first one."""

_EPSILON = 1e-9
_LENGTH = 512
"""Tokens of a source or target; Marian's own sinusoids have no end."""
_BLOCK = 128
"""The vocabulary becomes a multiple of it, for which the best token is found quickly."""


def marian_native(checkpoint: Checkpoint) -> Family:
    """Reads Marian: as OPUS-MT, but with other sinusoids and, in Firefox, another decoder.

    The vocabulary gets a token whose embedding is zero, from which targets start.

    Raises:
        CheckpointError: A setting is not supported, or a value is missing.
    """
    config = checkpoint.config
    for name, supported in _SUPPORTED.items():
        if config.some([name]).get(name, supported[0]) not in supported:
            raise config.wrong(name, f"is not supported; {_listed(supported)} can be imported")
    tokens = checkpoint.generation.number("pad_token_id")
    if min(config.numbers("dim-vocabs")) < tokens:
        raise config.wrong("dim-vocabs", f"is less than the vocabulary has tokens, {tokens}")
    norm_position = _norm_position(config)
    embeddings = _embeddings(checkpoint)
    width = config.number("dim-emb")
    table = with_spare_row(sinusoids(_LENGTH, width))
    return Family(
        config=TransformerConfig(
            vocabulary_size=_rounded_up(tokens + 1),
            width=width,
            heads=config.number("transformer-heads"),
            feed_forward_width=config.number("transformer-dim-ffn"),
            encoder_layers=config.number("enc-depth"),
            decoder_layers=config.number("dec-depth"),
            norm_position=norm_position,
            norm_epsilon=_EPSILON,
            embedding_norm="n" in config.text("transformer-postprocess-emb", "d"),
            activation=activation_of(
                config,
                "transformer-ffn-activation",
                config.text("transformer-ffn-activation", "swish"),
            ),
            positions=PositionScheme.LEARNED,
            shared_embeddings=embeddings["source_embedding"] == embeddings["target_embedding"],
            tied_output=embeddings["target_embedding"] == embeddings["output_projection"],
            logits_bias=not config.flag("output-omit-bias", False),
            max_source_length=_LENGTH,
            max_target_length=_LENGTH,
            pad_id=tokens,
            bos_id=tokens,
            eos_id=end_token(checkpoint),
            unk_id=tokens,
        ),
        names={
            **{f"{ours}.weight": theirs for ours, theirs in embeddings.items()},
            **_names(norm_position),
            "logits_bias": _LOGITS_BIAS,
        },
        changes=_changes(tokens, embeddings["output_projection"]),
        computed=dict.fromkeys(("encoder_positions.table", "decoder_positions.table"), table),
        first_layer=1,
    )


def _listed(supported: tuple[Any, ...]) -> str:
    return " or ".join(str(value).lower() for value in supported)


def _norm_position(config: Settings) -> NormPosition:
    before, after, top = (
        config.text(f"transformer-{name}", default).replace("d", "")
        for name, default in (("preprocess", ""), ("postprocess", "dan"), ("postprocess-top", ""))
    )
    if (before, after, top) not in _NORMS:
        raise config.wrong(
            "transformer-postprocess",
            f"({after!r}), transformer-preprocess ({before!r}) and transformer-postprocess-top"
            f" ({top!r}) put the norm where the network has none; they can be an, none and none,"
            " or a, n and n, and dropout (d)",
        )
    return _NORMS[before, after, top]


def _embeddings(checkpoint: Checkpoint) -> dict[str, str]:
    """Finds the table of tokens of source, target and output."""
    config = checkpoint.config
    is_tied = config.flag("tied-embeddings-all", False)
    is_shared = is_tied or config.flag("tied-embeddings-src", False)
    source, target = ("Wemb", "Wemb") if is_shared else ("encoder_Wemb", "decoder_Wemb")
    output = "decoder_ff_logit_out_Wt"
    if is_tied or config.flag("tied-embeddings", False):
        output = target
    elif output not in checkpoint.names:
        output = "decoder_ff_logit_out_W"  # of older versions
    return {"source_embedding": source, "target_embedding": target, "output_projection": output}


def _names(norm_position: NormPosition) -> dict[str, str]:
    layers = {
        **{f"encoder_layers.*.{ours}": f"encoder_l*_{name}" for ours, name in _LAYER.items()},
        **{
            f"decoder_layers.*.{ours}": f"decoder_l*_{name}"
            for ours, name in (_LAYER | _CROSS).items()
        },
    }
    suffix = "_pre" if norm_position is NormPosition.PRE else ""
    names = {
        ours: f"{theirs}{suffix if '_ln_' in theirs else ''}" for ours, theirs in layers.items()
    }
    return {
        f"{ours}.{leaf}": theirs.format(spelled)
        for ours, theirs in (names | _STACKS).items()
        for leaf, spelled in (_NORM if "_ln_" in theirs else _PROJECTION).items()
    }


def _changes(tokens: int, output: str) -> dict[str, Change]:
    """Turns weights into ours; those of projections are transposed, vectors have two axes."""

    def table(weight: Tensor) -> Tensor:
        rows = weight.new_zeros(_rounded_up(tokens + 1), weight.size(1))
        rows[:tokens] = weight[:tokens]
        return rows

    return {
        "*_embedding.weight": table,
        "output_projection.weight": (lambda weight: table(weight.t()))
        if output.endswith("_W")
        else table,
        "logits_bias": lambda bias: table(bias.t()).flatten(),
        "*norm.*": Tensor.flatten,
        "*.bias": Tensor.flatten,
        "*.weight": lambda weight: weight.t().contiguous(),
    }


def _rounded_up(tokens: int) -> int:
    return -(-tokens // _BLOCK) * _BLOCK
