"""Terms: token sequences that a hypothesis should contain."""

from __future__ import annotations

from collections.abc import Sequence

Term = tuple[int, ...]


def unmet(terms: Sequence[Term], token_ids: Sequence[int]) -> list[int]:
    """Lists the indexes of the terms that ``token_ids`` do not contain."""
    return [index for index, term in enumerate(terms) if not _contains(token_ids, term)]


def _contains(token_ids: Sequence[int], term: Term) -> bool:
    ends = range(len(term), len(token_ids) + 1)
    return any(tuple(token_ids[end - len(term) : end]) == term for end in ends)


def begun(token_ids: Sequence[int], term: Term) -> int:
    """Counts the leading tokens of a term with which ``token_ids`` end; the whole term is 0."""
    lengths = range(min(len(term) - 1, len(token_ids)), 0, -1)
    return next((n for n in lengths if tuple(token_ids[-n:]) == term[:n]), 0)
