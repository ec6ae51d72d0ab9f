"""Writes a shortlist as CTranslate2 has it, a vocabulary map.

A line is a source token, a tab, and the target tokens that it allows. What stands behind an empty
source is always allowed, and so are the unknown token and those that begin and end. All sentences
of a batch share what their tokens allow together.

Source: CTranslate2, src/vocabulary_map.cc.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from seqserve_server.engine.shortlist import Shortlist


def write_map(shortlist: Shortlist, path: Path) -> Path:
    """Writes a shortlist of numbered words, that of id 17 as ``t17``; gives the file."""
    ends = shortlist.offsets[1:].tolist()
    listed = {
        f"t{token}": shortlist.translations[begin:end].tolist()
        for token, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
        if begin < end
    }
    rules = {"": shortlist.frequent.tolist(), **listed}
    lines = (f"{source}\t{_words(targets)}\n" for source, targets in rules.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _words(tokens: Iterable[int]) -> str:
    return " ".join(f"t{token}" for token in tokens)
