"""Marian and OPUS-MT: ``source.spm`` divides sources, ``target.spm`` targets, ids are elsewhere.

``vocab.json`` has the ids of both sides. Models with separate vocabularies have those of the target
in ``target_vocab.json``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from seqserve_import.tokenizers.files import read_vocabulary
from seqserve_import.tokenizers.pieces import read_pieces
from seqserve_import.tokenizers.segmentation import EOS, PAD, UNK, segmenter

_LANGUAGE = re.compile(r">>\S+<<")


def convert(folder: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of sources, which decodes targets too if the vocabulary is shared.

    The target languages of a multilingual model, such as ``>>fra<<``, are one token each.
    """
    return side(folder / "source.spm", read_vocabulary(folder / "vocab.json"))


def convert_target(folder: Path) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if it is that of sources."""
    separate = folder / "target_vocab.json"
    source, target = folder / "source.spm", folder / "target.spm"
    if not separate.exists() and read_pieces(source) == read_pieces(target):
        return None
    vocabulary = separate if separate.exists() else folder / "vocab.json"
    return side(target, read_vocabulary(vocabulary))


def side(spm: Path, tokens: Sequence[str]) -> tokenizers.Tokenizer:
    """Returns the tokenizer of one side, whose pieces are in one file and its ids in another."""
    languages = [token for token in tokens if _LANGUAGE.fullmatch(token)]
    return segmenter(spm, read_pieces(spm), tokens, (PAD, EOS, UNK), languages)
