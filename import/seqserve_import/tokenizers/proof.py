"""Compares a converted tokenizer with SentencePiece itself, on the checkpoint's own model.

Both sides of an import's proof read the same tokens, so that wrong ones would go unseen.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from seqserve_export.tolerance import ParityError
from seqserve_server.text.tokenizer import Tokenizer

_MIN_SHARE = 0.9
"""Of sentences whose tokens are equal. Divisions of the same score may fall either way."""


def check_tokens(
    path: Path, tokenizer: Tokenizer, symbols: Collection[str], texts: Sequence[str]
) -> str:
    """Divides sources both ways; returns a line of the report, empty without SentencePiece.

    Args:
        path: The SentencePiece model of sources.
        tokenizer: What was made of it.
        symbols: Tokens of the checkpoint that are no pieces of the model and that texts may spell.
        texts: Sources.

    Raises:
        ParityError: The tokens of too many sentences differ.
    """
    try:
        import sentencepiece
    except ImportError:
        return ""
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    different = [
        text
        for text in texts
        if tokenizer.pieces(text).ids != _ids(reference, tokenizer, symbols, text)
    ]
    equal = len(texts) - len(different)
    if equal < _MIN_SHARE * len(texts):
        raise ParityError(
            f"{path}: only {equal} of {len(texts)} sentences get the tokens that SentencePiece"
            f" divides them into; one of the others is {different[0]!r:.200}; nothing was written"
        )
    return f"tokens equal          {equal} of {len(texts)}, divided by SentencePiece"


def _ids(reference: Any, tokenizer: Tokenizer, symbols: Collection[str], text: str) -> list[int]:
    pieces: list[str] = []
    for part in _parts(symbols, tokenizer.spelled(text).text):
        pieces += [part] if part in symbols else reference.encode(part, out_type=str)
    ids = map(tokenizer.source_id_of, pieces)
    return [tokenizer.unk_id if id_ is None else id_ for id_ in ids]


def _parts(symbols: Collection[str], text: str) -> list[str]:
    """Divides a text at its symbols."""
    if not symbols:
        return [text]
    pattern = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
    return [part for part in re.split(f"({pattern})", text) if part]
