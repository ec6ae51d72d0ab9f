"""Reads the lexical shortlists of Marian and Bergamot: ``lex.*.bin``, and ``lex.s2t`` as text.

The candidates of a source are those that Marian lists, with one exception: Marian adds up to seven
tokens so that the products of a batch have a multiple of eight columns.

Source: marian-dev, src/data/shortlist.h and shortlist.cpp.
"""

import struct
import zlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from seqserve_import.files import CheckpointError, check_regular
from seqserve_model.data import open_lines
from seqserve_server.engine.shortlist import Shortlist

_MAGIC = 0xF11A48D5013417F5
_HEADER = struct.Struct("<6Q")
"""Magic, checksum, frequent tokens, best translations, offsets, translations."""
_CHECKED_FROM = 16
"""The checksum is over what follows it."""
_GOLDEN = 0x9E3779B9
_MASK = (1 << 64) - 1

_MAX_BYTES = 1 << 30
_UNK = "<unk>"


def read_marian_shortlist(
    path: Path,
    source: Mapping[str, int],
    target: Mapping[str, int],
    *,
    frequent: int = 100,
    best: int = 100,
) -> Shortlist:
    """Reads a shortlist, binary or text, plain or gzip.

    Args:
        source: Ids of the source vocabulary by token.
        target: Those of the target vocabulary; where both are one, source tokens may be copied.
        frequent: For a text, how many of the first ids every source may choose.
        best: For a text, the most translations of a source token.
    """
    content = _content(path)
    if content[:8] == _MAGIC.to_bytes(8, "little"):
        frequent, translations = _read_binary(path, content)
    else:
        translations = _read_text(path, content, source, target, best)
    _check(path, translations, source, target)
    is_shared = source == target
    listed = {
        token: sorted({*translations.get(token, ()), *([token] if is_shared else ())})
        for token in (source.values() if is_shared else translations)
    }
    return Shortlist.of(range(min(frequent, max(target.values()) + 1)), listed)


def _content(path: Path) -> bytes:
    check_regular(path)
    try:
        with open_lines(path) as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    if len(content) > _MAX_BYTES:
        raise CheckpointError(f"{path}: is larger than {_MAX_BYTES} bytes")
    return content


def _read_binary(path: Path, content: bytes) -> tuple[int, dict[int, list[int]]]:
    header = content[: _HEADER.size].ljust(_HEADER.size, b"\0")
    _, checksum, frequent, _, num_offsets, num_translations = _HEADER.unpack(header)
    expected = _HEADER.size + 8 * num_offsets + 4 * num_translations
    if len(content) != expected:
        raise CheckpointError(f"{path}: has {len(content)} bytes; its header says {expected}")
    if _checksum(content[_CHECKED_FROM:]) != checksum:
        raise CheckpointError(f"{path}: is damaged: its checksum is wrong; copy it again")
    offsets = np.frombuffer(content, "<u8", num_offsets, _HEADER.size).astype(np.int64)
    flat = np.frombuffer(content, "<u4", num_translations, _HEADER.size + 8 * num_offsets)
    if (np.diff(offsets, prepend=0, append=num_translations) < 0).any():
        raise CheckpointError(f"{path}: its offsets do not rise")
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return frequent, {
        token: flat[begin:end].tolist() for token, (begin, end) in enumerate(bounds) if begin < end
    }


def _checksum(content: bytes) -> int:
    """Hashes the whole words of 64 bits, as Marian's ``hashMem`` does."""
    seed = 0
    for word in np.frombuffer(content, "<u8", len(content) // 8).tolist():
        seed ^= (word + _GOLDEN + (seed << 6) + (seed >> 2)) & _MASK
    return seed


def _read_text(
    path: Path, content: bytes, source: Mapping[str, int], target: Mapping[str, int], best: int
) -> dict[int, list[int]]:
    probabilities: dict[int, dict[int, float]] = defaultdict(dict)
    number = 0
    try:
        for line in content.decode().splitlines():
            number += 1
            into, out_of, probability = line.split()
            if "NULL" not in (into, out_of):
                token = source.get(out_of, source.get(_UNK))
                other = target.get(into, target.get(_UNK))
                if token is not None and other is not None:
                    # Words outside of the vocabulary share one token, which gets the highest of
                    # their probabilities.
                    known = probabilities[token].get(other, 0.0)
                    probabilities[token][other] = max(known, float(probability))
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: is not a shortlist: neither binary nor UTF-8") from None
    except ValueError:
        raise CheckpointError(
            f"{path}: line {number} is not target, source and probability"
        ) from None
    return {
        token: [
            other
            for other in sorted(others, key=lambda other: (-others[other], -other))[:best]
            if others[other] > 0
        ]
        for token, others in probabilities.items()
    }


def _check(
    path: Path,
    translations: Mapping[int, list[int]],
    source: Mapping[str, int],
    target: Mapping[str, int],
) -> None:
    largest = max((max(listed) for listed in translations.values() if listed), default=0)
    sizes = (
        ("source", max(translations, default=0), max(source.values())),
        ("target", largest, max(target.values())),
    )
    for side, token, last in sizes:
        if token > last:
            raise CheckpointError(
                f"{path}: has the {side} token {token}; the last one of the vocabulary is {last}"
            )
