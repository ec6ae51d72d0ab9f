"""In what an artifact computes: the choices, and what speaks for each."""

from __future__ import annotations

from enum import Enum


class Precision(Enum):
    """In what the artifact computes."""

    FP32 = "fp32"
    INT8 = "int8"


class Scales(Enum):
    """Where the scale of a projection's input comes from."""

    STATIC = "static"
    """From calibration: the fewest operations."""
    ROW = "row"
    """From each row as it comes: the most exact."""


class Caches(Enum):
    """How keys and values are kept between steps."""

    FLOAT = "float"
    """As they are: faster for short rows of a small model."""
    INT8 = "int8"
    """A quarter of the memory: faster where caches outgrow those of the processor."""
