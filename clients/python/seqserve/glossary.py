"""Glossaries of a server, as its list describes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Glossary:
    """Terms of one source and one target language, from one file of the server."""

    name: str
    """Its name, which requests give; glossaries of other languages may have the same one."""
    source_language: str
    """Code of the source language."""
    target_language: str
    """Code of the target language."""
    entry_count: int
    """Number of entries."""
    modified_s: int
    """Time at which its file was written, in seconds since 1970."""
    fault: str
    """Why the file as it is now is not used, but the last one that was sound; empty if it is."""
    entries: tuple[tuple[str, str], ...] = ()
    """Source and target of each entry, in the order of the file; empty in a list of glossaries."""
