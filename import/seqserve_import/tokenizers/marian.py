"""Marian and OPUS-MT: ``source.spm`` divides sources, ``target.spm`` targets, ids are elsewhere.

``vocab.json`` has the ids of both sides. Models with separate vocabularies have those of the target
in ``target_vocab.json``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken

from seqserve_import.files import in_order_of_ids, read_object
from seqserve_import.tokenizers.added import with_added
from seqserve_import.tokenizers.segmentation import read_pieces, segmenter
from seqserve_server.text.vocabulary import EOS, PAD, UNK

TARGET_VOCABULARY = "target_vocab.json"
_LANGUAGE = re.compile(r">>\S+<<")


def convert(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of sources, which decodes targets too if the vocabulary is shared.

    The target languages of a multilingual model, such as ``>>fra<<``, are one token each.
    """
    return _with_added(folder / "source.spm", rows)


def convert_target(folder: Path, rows: int) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if it is that of sources."""
    separate = folder / TARGET_VOCABULARY
    source, target = folder / "source.spm", folder / "target.spm"
    if separate.exists():  # ids of added tokens are those of sources
        return side(target, in_order_of_ids(separate, read_object(separate)), rows)
    if read_pieces(source) == read_pieces(target):
        return None
    return _with_added(target, rows)


def _with_added(spm: Path, rows: int) -> tokenizers.Tokenizer:
    vocabulary = spm.with_name("vocab.json")
    tokens = in_order_of_ids(vocabulary, read_object(vocabulary))
    added = with_added(spm.parent, tokens, rows)
    return side(spm, added.tokens, rows, added.symbols)


def side(
    spm: Path, tokens: Sequence[str], rows: int = 0, symbols: Sequence[AddedToken] = ()
) -> tokenizers.Tokenizer:
    """Returns the tokenizer of one side, whose pieces are in one file and its ids in another.

    ``rows`` is the number of its embeddings, if some may have no token, and ``symbols`` are always
    one token, as languages are.
    """
    own = {symbol.content for symbol in symbols}
    languages = [
        AddedToken(token, normalized=False)
        for token in tokens
        if _LANGUAGE.fullmatch(token) and token not in own
    ]
    special = (PAD, EOS, UNK)
    return segmenter(spm, read_pieces(spm), tokens, special, [*languages, *symbols], rows)
