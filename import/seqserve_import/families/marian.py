"""Marian, the family of OPUS-MT."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqserve_import.checkpoint import MAX_POSITIONS, MAX_WIDTH, Checkpoint
from seqserve_import.families.bart import bart_like
from seqserve_import.family import Family, with_spare_row
from seqserve_import.tokenizers.marian import TARGET_VOCABULARY
from seqserve_model.config import NormPosition
from seqserve_model.positions import sinusoids


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
    table = with_spare_row(_sinusoids(length, config.size("d_model", maximum=MAX_WIDTH)))
    tables = ("encoder_positions.table", "decoder_positions.table")
    return bart_like(
        checkpoint,
        changes=dict.fromkeys(tables, with_spare_row),
        computed=dict.fromkeys(tables, table),
        **differences,
    )


def _sinusoids(length: int, width: int) -> Tensor:
    """Computes the table of the paper (§3.5), its columns in another order, ``[length, width]``."""
    table = sinusoids(length, width)
    return torch.cat((table[:, 0::2], table[:, 1::2]), dim=1)
