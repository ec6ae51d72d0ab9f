"""The weights of an artifact, and whether a model is small."""

from __future__ import annotations

from pathlib import Path

MAX_SMALL_BYTES = 128 << 20
"""Weights up to this size are those of a small model: further copies of them cost little."""


def is_small(folder: Path) -> bool:
    """Whether copies of an artifact's weights cost little memory."""
    return (folder / "weights.bin").stat().st_size <= MAX_SMALL_BYTES
