"""The sentences that all real-text comparisons share."""

from __future__ import annotations

from pathlib import Path

_FILE = Path(__file__).with_suffix(".txt")


def everyday() -> list[str]:
    """Reads 120 everyday sentences in English."""
    return _FILE.read_text(encoding="utf-8").splitlines()
