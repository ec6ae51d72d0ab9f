"""The labels of series that belong to one version of a model."""

from __future__ import annotations

from typing import NamedTuple


class VersionLabels(NamedTuple):
    """Values of the labels ``model`` and ``version``."""

    model: str
    version: str

    @classmethod
    def of(cls, model: str, version: int) -> VersionLabels:
        """Writes a version as labels; version 0, of calls that got none, is empty."""
        return cls(model, str(version or ""))


NAMES = list(VersionLabels._fields)
"""Names of these labels."""
