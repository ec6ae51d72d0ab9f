"""Execution providers that the server supports."""

from __future__ import annotations

from enum import Enum


class Provider(Enum):
    """An execution provider of ONNX Runtime."""

    CPU = "cpu"
    CUDA = "cuda"
