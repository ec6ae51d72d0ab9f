"""Learns a shortlist from parallel text, and writes a version of the artifact that has it.

How probable each target token is as the translation of a source token comes from IBM model 1: each
target token translates one token of its source, or none of them, and any is as likely to be the
one. Expectation maximisation finds the probabilities; the order of tokens plays no part.

Source: Brown et al. 1993, "The Mathematics of Statistical Machine Translation: Parameter
Estimation", section 4.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqserve.errors import OptionError
from seqserve_export.options import ShortlistOptions
from seqserve_export.parity import HeldOut
from seqserve_export.shortlist import NewShortlist, attach_shortlist, check_tolerance
from seqserve_model.data import Pair, cannot_be_read, open_lines, read_pairs
from seqserve_server.artifact.files import atomic_folder
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.text.tokenizer import Tokenizer

Array = NDArray[Any]
TokenPair = tuple[Sequence[int], Sequence[int]]
"""The tokens of a source and of its target."""

_CHUNK_PAIRS = 5_000
# Less probable translations are chance.
_MIN_PROBABILITY = 1e-4


def make_shortlist(options: ShortlistOptions) -> Path:
    """Writes a version with a shortlist next to the artifact; returns its folder.

    Raises:
        ArtifactError: The artifact is not sound.
        OptionError: The text or the place do not fit.
        ShortlistError: Translations get worse by it; nothing was written.
    """
    manifest = Manifest.load(options.artifact)
    tokenizer = Tokenizer.of_artifact(options.artifact, manifest)
    place = _place(options)
    text, held_out = _text(options)
    shortlist = learn_shortlist(tokenizer, text, options)
    origin = f"{len(text)} pairs of {options.source.name} and {options.target.name}"
    manifest = replace(manifest, version=int(place.name))
    with atomic_folder(place) as folder:
        shutil.copytree(options.artifact, folder, dirs_exist_ok=True)
        check_tolerance(
            attach_shortlist(folder, manifest, NewShortlist(shortlist, origin), held_out)
        )
    return place


def _text(options: ShortlistOptions) -> tuple[list[Pair], HeldOut]:
    pairs = read_text(options.source, options.target)
    if options.data:
        held_out = read_pairs(options.data).pairs[: options.sentences]
    else:
        pairs, held_out = pairs[: -options.sentences], pairs[-options.sentences :]
    if not pairs:
        raise OptionError(
            f"--source: {options.source} has {len(held_out)} sentences, and all of them are for the"
            " proof; give more text, --data, or fewer --sentences"
        )
    name = (options.data or options.source).name
    return pairs[: options.pairs], HeldOut(pairs=held_out, name=name, threads=options.threads)


def learn_shortlist(
    tokenizer: Tokenizer, text: Sequence[Pair], options: ShortlistOptions
) -> Shortlist:
    """Learns which tokens are frequent in targets, and which translate which.

    Raises:
        OptionError: Sources and targets have different vocabularies.
    """
    if not tokenizer.is_joint:
        raise OptionError("a model with a vocabulary for each side takes no shortlist")
    encoded: list[TokenPair] = [
        (tokenizer.pieces(pair.source).ids, tokenizer.pieces(pair.target, is_target=True).ids)
        for pair in text
    ]
    counts = Counter(chain.from_iterable(target for _, target in encoded))
    frequent = {token for token, _ in counts.most_common(options.frequent)}
    translations = learn_translations(
        encoded, tokenizer.vocabulary_size, iterations=options.iterations, best=options.best
    )
    # Names and numbers stay as they are.
    kept = {token: sorted({*others, token}) for token, others in translations.items()}
    return Shortlist.of(sorted(frequent | {tokenizer.eos_id, tokenizer.unk_id}), kept)


def read_text(source: Path, target: Path) -> list[Pair]:
    """Reads two files of as many lines, plain, gzip or bzip2; leaves out pairs with an empty side.

    Raises:
        OptionError: They cannot be read, or differ in their number of lines.
    """
    sources, targets = _lines(source, "--source"), _lines(target, "--target")
    if len(sources) != len(targets):
        raise OptionError(
            f"--target: {target} has {len(targets)} lines, {source} has {len(sources)}; each line"
            " translates the same line of the other file"
        )
    pairs = map(Pair, sources, targets)
    return [pair for pair in pairs if pair.source and pair.target]


def _lines(path: Path, option: str) -> list[str]:
    try:
        with open_lines(path) as lines:
            return [line.decode().strip() for line in lines]
    except (OSError, EOFError) as error:
        raise OptionError(f"{option}: {cannot_be_read(path, error)}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{option}: {path} is not UTF-8") from None


def _place(options: ShortlistOptions) -> Path:
    model = options.artifact.resolve().parent
    taken = [int(entry.name) for entry in model.iterdir() if entry.name.isdecimal()]
    folder = model / str(options.model_version or max(taken, default=0) + 1)
    if folder.exists():
        raise OptionError(
            f"--model-version: {folder} exists already; take another one or remove it"
        )
    return folder


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
