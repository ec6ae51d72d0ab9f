"""Pegasus: ``spiece.model``, whose pieces follow 103 tokens that only its training used."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from seqserve_import.tokenizers.added import read_size, with_added
from seqserve_import.tokenizers.pieces import read_pieces
from seqserve_import.tokenizers.segmentation import segmenter
from seqserve_server.text.vocabulary import EOS, PAD, UNK

_MASKS = ["<mask_1>", "<mask_2>"]


def convert(path: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a Pegasus checkpoint."""
    model = read_pieces(path)
    offset = read_size(path.parent, "offset", 103)
    special = [PAD, EOS, *_MASKS, *(f"<unk_{number}>" for number in range(2, offset))]
    # The model file has <pad> and </s> in the first two places.
    tokens = [*special, *(piece.piece for piece in model.pieces[2:])]
    added = with_added(path.parent, tokens, rows)
    special += added.hidden
    return segmenter(path, model, added.tokens, {*special, UNK}, added.symbols)
