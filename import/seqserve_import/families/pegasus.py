"""Pegasus, for summaries."""

from __future__ import annotations

from seqserve_import.checkpoint import Checkpoint
from seqserve_import.families.marian import with_sinusoids
from seqserve_import.family import Family
from seqserve_model.config import NormPosition


def pegasus(checkpoint: Checkpoint) -> Family:
    """Reads Pegasus: as Marian, but the norm comes before."""
    return with_sinusoids(checkpoint, norm_position=NormPosition.PRE)
