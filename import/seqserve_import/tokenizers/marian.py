"""Marian and OPUS-MT: ``source.spm`` divides sources, ``target.spm`` targets, ids are elsewhere.

``vocab.json`` has the ids of both sides. Models with separate vocabularies have those of the target
in ``target_vocab.json``.
"""

from __future__ import annotations

import re
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
    return _side(folder / "source.spm", folder / "vocab.json", read_rows(folder))


def convert_target(folder: Path) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if it is that of sources."""
    separate = folder / TARGET_VOCABULARY
    source, target = folder / "source.spm", folder / "target.spm"
    if not separate.exists() and read_pieces(source) == read_pieces(target):
        return None
    rows = read_rows(folder, "decoder_vocab_size") or read_rows(folder)
    return _side(target, separate if separate.exists() else folder / "vocab.json", rows)


def _side(spm: Path, vocabulary: Path, rows: int) -> tokenizers.Tokenizer:
    tokens = read_vocabulary(vocabulary)
    languages = [token for token in tokens if _LANGUAGE.fullmatch(token)]
    return segmenter(spm, read_pieces(spm), tokens, (PAD, EOS, UNK), languages, rows)
