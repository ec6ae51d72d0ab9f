"""The sentences that all real-text comparisons share."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def everyday() -> list[str]:
    """Reads 120 everyday sentences in English."""
    return _read("sentences.txt")


def news() -> list[str]:
    """Reads 192 sentences in English as newspapers have them, 25 to 30 words each."""
    return _read("news.txt")


def _read(name: str) -> list[str]:
    return (_FOLDER / name).read_text(encoding="utf-8").splitlines()
