"""Precisions of an artifact, and when to choose each."""

from __future__ import annotations

from enum import Enum


class Precision(Enum):
    """Arithmetic of the projections."""

    FP32 = "fp32"
    FP16 = "fp16"
    """Of the caches too: for GPUs. A CPU computes it more slowly than fp32."""
    INT8 = "int8"


class Scales(Enum):
    """Where the scale of a projection's input comes from."""

    STATIC = "static"
    """From calibration: the fewest operations."""
    ROW = "row"
    """From each row at run time: the most exact."""


class Caches(Enum):
    """Type of the K/V caches."""

    FLOAT = "float"
    """fp32: faster for short rows of a small model."""
    INT8 = "int8"
    """A quarter of the memory: faster where caches outgrow those of the processor."""
