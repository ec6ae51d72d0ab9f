"""A lexical shortlist: for each source token the target tokens that may translate it.

A request may choose only among the most frequent target tokens and the translations of its source
tokens, so a step projects onto some hundred tokens instead of tens of thousands.

Sources: Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation",
section 3.3; Junczys-Dowmunt et al. 2018, "Marian: Cost-effective High-Quality Neural Machine
Translation in C++".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine.packing import Array

FILE = "shortlist.bin"

_MAGIC = b"seqlist1"
_HEADER = struct.Struct("<8s3I")
"""Magic, frequent tokens, source tokens, listed translations."""
_NUMBER = np.dtype("<u4")


class Shortlist:
    """Candidates by source token."""

    def __init__(self, frequent: Array, offsets: Array, translations: Array) -> None:
        """Takes the frequent tokens ``[F]`` and the parts of the file about source tokens.

        Their translations ``[N]`` follow each other; the offsets ``[S + 1]`` are where those of
        each token begin, and the last ones end.
        """
        self.frequent, self.offsets, self.translations = frequent, offsets, translations

    @classmethod
    def of(cls, frequent: Iterable[int], translations: Mapping[int, Sequence[int]]) -> Shortlist:
        """Makes one from the translations of each source token that has some."""
        size = max(translations, default=-1) + 1
        lists = [translations.get(token, ()) for token in range(size)]
        offsets = np.cumsum([0, *map(len, lists)]).astype(_NUMBER)
        flat = np.fromiter((token for listed in lists for token in listed), _NUMBER)
        return cls(np.fromiter(frequent, _NUMBER), offsets, flat)

    @property
    def max_translations(self) -> int:
        """The most translations that a source token has."""
        return int(np.diff(self.offsets.astype(np.int64)).max(initial=0))

    def candidates(self, source: Sequence[int], needed: Iterable[int], size: int) -> Array:
        """Lists the tokens that a request may choose, rising, with the needed ones."""
        is_listed = np.zeros(size, np.bool_)
        is_listed[self.frequent] = True
        is_listed[list(needed)] = True
        known = len(self.offsets) - 1
        for token in {token for token in source if token < known}:
            begin, end = self.offsets[token], self.offsets[token + 1]
            is_listed[self.translations[begin:end]] = True
        return is_listed.nonzero()[0]

    def write(self, path: Path) -> None:
        """Writes the file; export/README.md has its format."""
        sizes = len(self.frequent), len(self.offsets) - 1, len(self.translations)
        parts = (self.frequent, self.offsets, self.translations)
        with path.open("wb") as file:
            file.write(_HEADER.pack(_MAGIC, *sizes))
            for part in parts:
                file.write(np.asarray(part, _NUMBER).tobytes())

    @classmethod
    def read(cls, path: Path, vocabulary_size: int) -> Shortlist:
        """Reads the file; ArtifactError if it is damaged or names tokens that the model lacks."""
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size or header[:8] != _MAGIC:
                raise ArtifactError(f"{path}: is not a shortlist; make it again")
            _, frequent, sources, listed = _HEADER.unpack(header)
            counts = (frequent, sources + 1, listed)
            expected = _HEADER.size + _NUMBER.itemsize * sum(counts)
            if size != expected:
                raise ArtifactError(f"{path}: has {size} bytes; its header says {expected}")
            parts = [np.frombuffer(file.read(4 * count), _NUMBER) for count in counts]
        shortlist = cls(*parts)
        shortlist._check(path, vocabulary_size)
        return shortlist

    def _check(self, path: Path, vocabulary_size: int) -> None:
        offsets = self.offsets.astype(np.int64)
        if len(offsets) > vocabulary_size + 1:
            raise ArtifactError(
                f"{path}: lists {len(offsets) - 1} source tokens; the model has {vocabulary_size}"
            )
        if offsets[0] or offsets[-1] != len(self.translations) or (np.diff(offsets) < 0).any():
            raise ArtifactError(
                f"{path}: its offsets do not divide the translations; make it again"
            )
        for name, tokens in (("frequent", self.frequent), ("translations", self.translations)):
            largest = int(tokens.max(initial=0))
            if largest >= vocabulary_size:
                raise ArtifactError(
                    f"{path}: {name}: {largest} is not a token id; the model has {vocabulary_size}"
                )
