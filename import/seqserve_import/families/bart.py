"""BART, and the families that descend from it: mBART, M2M-100 and NLLB, Marian, Pegasus."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from seqserve_import.checkpoint import (
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_WIDTH,
    Checkpoint,
    Settings,
)
from seqserve_import.family import (
    NAMES,
    Change,
    Family,
    activation_of,
    end_token,
    find_embeddings,
    layer_names,
    start_token,
    with_extra_position,
)
from seqserve_import.tokenizers.marian import TARGET_VOCABULARY
from seqserve_model.config import Activation, NormPosition, PositionScheme, TransformerConfig
from seqserve_model.positions import sinusoids

_NAMES = NAMES["bart"]
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
    changes = {"*_positions.table": lambda table: with_extra_position(table[_OFFSET:])}
    return bart_like(checkpoint, changes=changes, norm_position=norm_position, embedding_norm=True)


def bart_like(
    checkpoint: Checkpoint,
    *,
    changes: Mapping[str, Change] | None = None,
    computed: Mapping[str, Tensor] | None = None,
    **differences: Any,
) -> Family:
    """Reads what BART and its descendants have in common; arguments are as in :class:`Family`.

    Args:
        differences: Values of the configuration that are the family's own.
    """
    config = checkpoint.config
    prefix = _prefix(checkpoint)
    embeddings = find_embeddings(
        checkpoint,
        shared=f"{prefix}shared.weight",
        source=f"{prefix}encoder.embed_tokens.weight",
        target=f"{prefix}decoder.embed_tokens.weight",
        output="lm_head.weight",
    )
    positions = config.size("max_position_embeddings", maximum=MAX_POSITIONS)
    bias = "final_logits_bias"
    values: dict[str, Any] = {
        "vocabulary_size": config.size("vocab_size"),
        "width": config.size("d_model", maximum=MAX_WIDTH),
        "heads": config.number("encoder_attention_heads"),
        "feed_forward_width": config.size("encoder_ffn_dim"),
        **_decoder_sizes(config),
        "encoder_layers": config.size("encoder_layers", maximum=MAX_LAYERS),
        "decoder_layers": config.size("decoder_layers", maximum=MAX_LAYERS),
        "dropout": config.real("dropout", 0.1),
        "activation": _activation(config, "gelu"),
        "positions": PositionScheme.LEARNED,
        "shared_embeddings": embeddings.shared_embeddings,
        "tied_output": embeddings.tied_output,
        "logits_bias": bias in checkpoint.names and bool(checkpoint.tensor(bias).any()),
        "scaled_embeddings": config.flag("scale_embedding", False),
        "max_source_length": positions,
        "max_target_length": positions - 1,
        "pad_id": config.size("pad_token_id"),
        "bos_id": start_token(checkpoint),
        "eos_id": end_token(checkpoint),
        "unk_id": config.number("pad_token_id"),
    }
    return Family(
        config=TransformerConfig(**values | differences),
        names={**embeddings.names, **weight_names(prefix)},
        changes={"logits_bias": Tensor.flatten, **(changes or {})},
        computed=computed or {},
        unused=(*embeddings.others, bias, "*.embed_positions.*", "*.version"),
    )


def _prefix(checkpoint: Checkpoint) -> str:
    """Finds the prefix of the stacks' names: empty if the stacks were saved without a head, as in
    ``facebook/bart-base``.
    """
    is_whole = any(name.startswith("model.") for name in checkpoint.names)
    return "model." if is_whole or "shared.weight" not in checkpoint.names else ""


def weight_names(prefix: str) -> dict[str, str]:
    """Returns the names of the weights and modules of both stacks, by ours."""
    layer = _NAMES["layer"]
    layers = layer_names(
        f"{prefix}{{}}.layers.*.{{}}", encoder=layer, decoder=layer | _NAMES["cross"]
    )
    rest = {ours: f"{prefix}{theirs}" for ours, theirs in _NAMES["stacks"].items()}
    return {**layers, **rest, "logits_bias": "final_logits_bias"}


def _activation(config: Settings, default: str) -> Activation:
    name = "activation_function"
    return activation_of(config, name, config.text(name, default))


def _decoder_sizes(config: Settings) -> dict[str, int]:
    theirs = {"decoder_heads": "attention_heads", "decoder_feed_forward_width": "ffn_dim"}
    return {
        ours: size
        for ours, name in theirs.items()
        if (size := config.number(f"decoder_{name}")) != config.number(f"encoder_{name}")
    }


def m2m100(checkpoint: Checkpoint) -> Family:
    """Reads M2M-100 and NLLB: the norm comes before, positions are counted after the padding.

    Settings that are missing are not those of the others.
    """
    config = checkpoint.config
    first = config.size("pad_token_id", maximum=MAX_POSITIONS) + 1
    length = config.size("max_position_embeddings", maximum=MAX_POSITIONS)
    width = config.size("d_model", maximum=MAX_WIDTH)
    table = with_extra_position(fairseq_sinusoids(first + length, width)[first:])
    tables = dict.fromkeys(("encoder_positions.table", "decoder_positions.table"), table)
    return bart_like(
        checkpoint,
        computed=tables,
        norm_position=NormPosition.PRE,
        activation=_activation(config, "relu"),
        scaled_embeddings=config.flag("scale_embedding", True),
    )


def fairseq_sinusoids(length: int, width: int) -> Tensor:
    """Computes the table of fairseq and of Marian, ``[length, width]``: sines, then cosines.

    The longest wavelength is 10,000 times the shortest. Rounded as both round, because that is what
    the models were trained with.
    """
    half = width // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10_000) / (half - 1)))
    angles = torch.arange(length).float()[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def marian(checkpoint: Checkpoint) -> Family:
    """Reads Marian: as BART, but with sinusoids and without a norm of the embeddings.

    Some models have a vocabulary for each side.
    """
    config = checkpoint.config
    source = target = config.size("vocab_size")
    if not config.flag("share_encoder_decoder_embeddings", True):
        target = config.size("decoder_vocab_size", source)
    is_joint = source == target and not (checkpoint.folder / TARGET_VOCABULARY).exists()
    return with_sinusoids(
        checkpoint,
        norm_position=NormPosition.POST,
        vocabulary_size=target,
        source_vocabulary_size=0 if is_joint else source,
    )


def with_sinusoids(checkpoint: Checkpoint, **differences: Any) -> Family:
    """Reads a model whose tables of positions have all sines before all cosines.

    A checkpoint that holds the tables has the sines and cosines that it was trained with.
    """
    config = checkpoint.config
    length = config.size("max_position_embeddings", maximum=MAX_POSITIONS)
    table = with_extra_position(marian_sinusoids(length, config.size("d_model", maximum=MAX_WIDTH)))
    tables = ("encoder_positions.table", "decoder_positions.table")
    return bart_like(
        checkpoint,
        changes=dict.fromkeys(tables, with_extra_position),
        computed=dict.fromkeys(tables, table),
        **differences,
    )


def marian_sinusoids(length: int, width: int) -> Tensor:
    """Computes the table of the paper (§3.5), its columns in another order, ``[length, width]``."""
    table = sinusoids(length, width)
    return torch.cat((table[:, 0::2], table[:, 1::2]), dim=1)


def pegasus(checkpoint: Checkpoint) -> Family:
    """Reads Pegasus: as Marian, but the norm comes before."""
    return with_sinusoids(checkpoint, norm_position=NormPosition.PRE)
