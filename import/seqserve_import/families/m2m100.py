"""M2M-100 and NLLB."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqserve_import.checkpoint import MAX_POSITIONS, MAX_WIDTH, Checkpoint
from seqserve_import.families.bart import bart_like
from seqserve_import.family import Family, with_spare_row
from seqserve_model.config import NormPosition


def m2m100(checkpoint: Checkpoint) -> Family:
    """Reads M2M-100 and NLLB: the norm comes before, positions are counted after the padding."""
    config = checkpoint.config
    first = config.size("pad_token_id", maximum=MAX_POSITIONS) + 1
    length = config.size("max_position_embeddings", maximum=MAX_POSITIONS)
    width = config.size("d_model", maximum=MAX_WIDTH)
    table = with_spare_row(sinusoids(first + length, width)[first:])
    tables = dict.fromkeys(("encoder_positions.table", "decoder_positions.table"), table)
    return bart_like(checkpoint, computed=tables, norm_position=NormPosition.PRE)


def sinusoids(length: int, width: int) -> Tensor:
    """Computes the table of fairseq and of Marian, ``[length, width]``: sines, then cosines.

    The longest wavelength is 10,000 times the shortest. Rounded as both round, because that is what
    the models were trained with.
    """
    half = width // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10_000) / (half - 1)))
    angles = torch.arange(length).float()[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)
