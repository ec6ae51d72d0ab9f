"""Learns from parallel text how probable each target token is as the translation of a source token.

IBM model 1: each target token translates one token of its source, or none of them, and any is as
likely to be the one. Expectation maximisation finds the probabilities; the order of tokens plays no
part.

Source: Brown et al. 1993, "The Mathematics of Statistical Machine Translation: Parameter
Estimation", section 4.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
TokenPair = tuple[Sequence[int], Sequence[int]]
"""The tokens of a source and of its target."""

_CHUNK_PAIRS = 5_000
# Less probable translations are chance.
_MIN_PROBABILITY = 1e-4


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some sentence pairs: every target token with every token that it may translate."""

    links: Array
    """Index of each such pair of tokens in the table, int32 ``[L]``."""
    starts: Array
    """Where the links of each target token begin, ``[T]``."""
    sizes: Array
    """How many links it has, ``[T]``."""


def learn_translations(
    pairs: Sequence[TokenPair], vocabulary_size: int, *, iterations: int, best: int
) -> dict[int, list[int]]:
    """Finds the most probable translations of each source token that the pairs contain.

    Args:
        pairs: Sentence pairs as token ids; a pair with an empty side counts for nothing.

    Returns:
        Target tokens of each source token, most probable first.
    """
    # The number after the last token means no token.
    keys, chunks = _links(pairs, vocabulary_size, none=vocabulary_size)
    sources = keys // vocabulary_size
    table = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for chunk in chunks:
            shares = table[chunk.links]
            shares /= np.add.reduceat(shares, chunk.starts).repeat(chunk.sizes)
            counts += np.bincount(chunk.links, shares, len(keys))
        totals = np.bincount(sources, counts, vocabulary_size + 1)
        table = counts / totals[sources]
    return _ranked(sources, keys % vocabulary_size, table, vocabulary_size, best)


def _links(pairs: Sequence[TokenPair], size: int, none: int) -> tuple[Array, list[_Chunk]]:
    """Numbers all pairs of tokens that share a sentence pair; their keys are rising."""
    sound = [(source, target) for source, target in pairs if source and target]
    parts = [sound[begin : begin + _CHUNK_PAIRS] for begin in range(0, len(sound), _CHUNK_PAIRS)]
    keys = np.empty(0, np.int64)
    for part in parts:
        keys = np.union1d(keys, np.concatenate([*_keys(part, size, none)]))
    return keys, [_chunk(part, keys, size, none) for part in parts]


def _chunk(pairs: Sequence[TokenPair], keys: Array, size: int, none: int) -> _Chunk:
    links = keys.searchsorted(np.concatenate([*_keys(pairs, size, none)])).astype(np.int32)
    lengths = [len(source) + 1 for source, _ in pairs]
    sizes = np.repeat(lengths, [len(target) for _, target in pairs])
    return _Chunk(links, sizes.cumsum() - sizes, sizes)


def _keys(pairs: Sequence[TokenPair], size: int, none: int) -> Iterator[Array]:
    """Numbers the pairs of each target token with each token of its source, and with no token."""
    for source, target in pairs:
        first = np.array([*source, none], np.int64) * size
        yield (first + np.array(target, np.int64)[:, None]).ravel()


def _ranked(
    sources: Array, targets: Array, table: Array, none: int, best: int
) -> dict[int, list[int]]:
    is_likely = (table >= _MIN_PROBABILITY) & (sources != none)
    sources, targets, table = sources[is_likely], targets[is_likely], table[is_likely]
    order = np.lexsort((targets, -table, sources))
    sources, targets = sources[order], targets[order]
    tokens, begins = np.unique(sources, return_index=True)
    ends = np.append(begins[1:], len(sources))
    return {
        int(token): targets[begin : min(end, begin + best)].tolist()
        for token, begin, end in zip(tokens, begins, ends, strict=True)
    }
