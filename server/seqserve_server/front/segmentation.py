"""Where a source may be divided into segments."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """The values are those of the API."""

    NONE = "none"
    LINES = "lines"
    SENTENCES = "sentences"
