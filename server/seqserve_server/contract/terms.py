"""Terms: sequences of words that a hypothesis is to contain."""

from __future__ import annotations

from collections.abc import Sequence

Term = tuple[int, ...]


def unmet(terms: Sequence[Term], words: Sequence[int]) -> list[int]:
    """Lists which of the terms are not in ``words``."""
    return [number for number, term in enumerate(terms) if not _contains(words, term)]


def _contains(words: Sequence[int], term: Term) -> bool:
    ends = range(len(term), len(words) + 1)
    return any(tuple(words[end - len(term) : end]) == term for end in ends)


def begun(words: Sequence[int], term: Term) -> int:
    """Counts the first words of a term with which ``words`` end, not all of it."""
    lengths = range(min(len(term) - 1, len(words)), 0, -1)
    return next((n for n in lengths if tuple(words[-n:]) == term[:n]), 0)
