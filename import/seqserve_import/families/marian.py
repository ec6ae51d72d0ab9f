"""Marian, the family of OPUS-MT."""

from __future__ import annotations

import torch
from torch import Tensor

from seqserve_import.checkpoint import Checkpoint
from seqserve_import.families.bart import bart_like
from seqserve_import.family import Family, with_spare_row
from seqserve_model.config import NormPosition
from seqserve_model.positions import sinusoids


def marian(checkpoint: Checkpoint) -> Family:
    """Reads Marian: as BART, but with sinusoids and without a norm of the embeddings."""
    config = checkpoint.config
    size = config.number("vocab_size")
    if config.number("decoder_vocab_size", size) != size:
        raise config.wrong(
            "decoder_vocab_size",
            "is not equal to vocab_size: models with a vocabulary for each side cannot be served",
        )
    if (checkpoint.folder / "target_vocab.json").exists():
        raise config.wrong(
            "share_encoder_decoder_embeddings",
            "and target_vocab.json tell of a vocabulary for each side, which cannot be served",
        )
    return with_sinusoids(checkpoint, norm_position=NormPosition.POST)


def with_sinusoids(checkpoint: Checkpoint, *, norm_position: NormPosition) -> Family:
    """Reads a model whose tables of positions have all sines before all cosines.

    A checkpoint that holds the tables has the sines and cosines that it was trained with.
    """
    length = checkpoint.config.number("max_position_embeddings")
    table = with_spare_row(_sinusoids(length, checkpoint.config.number("d_model")))
    tables = ("encoder_positions.table", "decoder_positions.table")
    return bart_like(
        checkpoint,
        changes=dict.fromkeys(tables, with_spare_row),
        computed=dict.fromkeys(tables, table),
        norm_position=norm_position,
    )


def _sinusoids(length: int, width: int) -> Tensor:
    """Computes the table of the paper (§3.5), its columns in another order, ``[length, width]``."""
    table = sinusoids(length, width)
    return torch.cat((table[:, 0::2], table[:, 1::2]), dim=1)
