"""Marian and OPUS-MT: ``source.spm`` divides sources, ``target.spm`` targets, ids are elsewhere.

``vocab.json`` has the ids of both sides. Models with separate vocabularies have those of the target
in ``target_vocab.json``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import tokenizers

from seqserve_import.tokenizers.files import read_rows, read_vocabulary
from seqserve_import.tokenizers.pieces import read_pieces
from seqserve_import.tokenizers.segmentation import EOS, PAD, UNK, segmenter

TARGET_VOCABULARY = "target_vocab.json"
_LANGUAGE = re.compile(r">>\S+<<")


def convert(folder: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of sources, which decodes targets too if the vocabulary is shared.

    The target languages of a multilingual model, such as ``>>fra<<``, are one token each.
    """
    tokens = read_vocabulary(folder / "vocab.json")
    return side(folder / "source.spm", tokens, read_rows(folder))


def convert_target(folder: Path) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if it is that of sources."""
    separate = folder / TARGET_VOCABULARY
    source, target = folder / "source.spm", folder / "target.spm"
    if not separate.exists() and read_pieces(source) == read_pieces(target):
        return None
    vocabulary = separate if separate.exists() else folder / "vocab.json"
    rows = read_rows(folder, "decoder_vocab_size") or read_rows(folder)
    return side(target, read_vocabulary(vocabulary), rows)


def side(spm: Path, tokens: Sequence[str], rows: int = 0) -> tokenizers.Tokenizer:
    """Returns the tokenizer of one side, whose pieces are in one file and its ids in another.

    ``rows`` is the number of its embeddings, if some may have no token.
    """
    languages = [token for token in tokens if _LANGUAGE.fullmatch(token)]
    return segmenter(spm, read_pieces(spm), tokens, (PAD, EOS, UNK), languages, rows)
