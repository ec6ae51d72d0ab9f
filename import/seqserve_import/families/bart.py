"""BART and mBART, and what all families that descend from them share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.family import (
    Change,
    Family,
    activation_of,
    end_token,
    find_embeddings,
    start_token,
    with_spare_row,
)
from seqserve_model.config import NormPosition, PositionScheme, TransformerConfig

# fmt: off
_LAYER = {
    "self_attention.query":  "self_attn.q_proj",
    "self_attention.key":    "self_attn.k_proj",
    "self_attention.value":  "self_attn.v_proj",
    "self_attention.output": "self_attn.out_proj",
    "self_residual.norm":    "self_attn_layer_norm",
    "feed_forward.up":       "fc1",
    "feed_forward.down":     "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
_CROSS = {
    "cross_attention.query":  "encoder_attn.q_proj",
    "cross_attention.key":    "encoder_attn.k_proj",
    "cross_attention.value":  "encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_residual.norm":    "encoder_attn_layer_norm",
}
_STACKS = {
    "encoder_positions.table": "model.encoder.embed_positions.weight",
    "decoder_positions.table": "model.decoder.embed_positions.weight",
    "encoder_embedding_norm":  "model.encoder.layernorm_embedding",
    "decoder_embedding_norm":  "model.decoder.layernorm_embedding",
    "encoder_norm":            "model.encoder.layer_norm",
    "decoder_norm":            "model.decoder.layer_norm",
    "logits_bias":             "final_logits_bias",
}
# fmt: on

_NAMES = {
    **{f"encoder_layers.*.{ours}": f"model.encoder.layers.*.{n}" for ours, n in _LAYER.items()},
    **{
        f"decoder_layers.*.{ours}": f"model.decoder.layers.*.{n}"
        for ours, n in (_LAYER | _CROSS).items()
    },
    **_STACKS,
}

_OFFSET = 2
"""Rows at the head of a table of positions that no token reads."""


def bart(checkpoint: Checkpoint) -> Family:
    """Reads BART: the norm comes after, embeddings are normalised."""
    return with_learned_positions(checkpoint, NormPosition.POST)


def mbart(checkpoint: Checkpoint) -> Family:
    """Reads mBART and mBART-50: as BART, but the norm comes before."""
    return with_learned_positions(checkpoint, NormPosition.PRE)


def with_learned_positions(checkpoint: Checkpoint, norm_position: NormPosition) -> Family:
    """Reads a model with trained tables of positions."""
    tables = dict.fromkeys(("encoder_positions.table", "decoder_positions.table"), _usable_rows)
    return bart_like(checkpoint, changes=tables, norm_position=norm_position, embedding_norm=True)


def _usable_rows(table: Tensor) -> Tensor:
    return with_spare_row(table[_OFFSET:])


def bart_like(
    checkpoint: Checkpoint,
    *,
    changes: Mapping[str, Change] | None = None,
    computed: Mapping[str, Tensor] | None = None,
    **differences: Any,
) -> Family:
    """Reads what BART and its descendants have in common.

    Args:
        checkpoint: The checkpoint.
        changes: As in :class:`Family`.
        computed: As in :class:`Family`.
        differences: Values of the configuration that are the family's own.

    Raises:
        CheckpointError: A value is missing, or the network cannot be built from it.
    """
    config = checkpoint.config
    embeddings = find_embeddings(
        checkpoint,
        shared="model.shared.weight",
        source="model.encoder.embed_tokens.weight",
        target="model.decoder.embed_tokens.weight",
        output="lm_head.weight",
    )
    positions = config.number("max_position_embeddings")
    bias = "final_logits_bias"
    values: dict[str, Any] = {
        "vocabulary_size": config.number("vocab_size"),
        "width": config.number("d_model"),
        "heads": config.number("encoder_attention_heads"),
        "feed_forward_width": config.number("encoder_ffn_dim"),
        **_decoder_sizes(config),
        "encoder_layers": config.number("encoder_layers"),
        "decoder_layers": config.number("decoder_layers"),
        "dropout": config.real("dropout", 0.1),
        "activation": activation_of(
            config, "activation_function", config.text("activation_function", "gelu")
        ),
        "positions": PositionScheme.LEARNED,
        "shared_embeddings": embeddings.shared_embeddings,
        "tied_output": embeddings.tied_output,
        "logits_bias": bias in checkpoint.names and bool(checkpoint.tensor(bias).any()),
        "scaled_embeddings": config.flag("scale_embedding", False),
        "max_source_length": positions,
        "max_target_length": positions - 1,
        "pad_id": config.number("pad_token_id"),
        "bos_id": start_token(checkpoint),
        "eos_id": end_token(checkpoint),
        "unk_id": config.number("pad_token_id"),
    }
    return Family(
        config=TransformerConfig(**values | differences),
        names={**embeddings.names, **_NAMES},
        changes={"logits_bias": Tensor.flatten, **(changes or {})},
        computed=computed or {},
        unused=(*embeddings.others, bias, "*.embed_positions.*", "*.version"),
    )


def _decoder_sizes(config: Settings) -> dict[str, int]:
    """Gives the sizes of the decoder that are not those of the encoder."""
    theirs = {"decoder_heads": "attention_heads", "decoder_feed_forward_width": "ffn_dim"}
    return {
        ours: size
        for ours, name in theirs.items()
        if (size := config.number(f"decoder_{name}")) != config.number(f"encoder_{name}")
    }
