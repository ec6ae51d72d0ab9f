"""Lists names in a message: as many as a person reads, and how many more there are."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 20
"""Names that are listed, enough to find the right one."""


def listed(names: Iterable[str]) -> str:
    """Joins the first names, and counts the others."""
    names = list(names)
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more} more" if more > 0 else "")
