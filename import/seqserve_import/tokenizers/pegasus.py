"""Pegasus: ``spiece.model``, whose pieces follow 103 tokens that only its training used."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from seqserve_import.tokenizers.files import read_settings
from seqserve_import.tokenizers.pieces import read_pieces
from seqserve_import.tokenizers.segmentation import EOS, PAD, UNK, segmenter

_MASKS = ["<mask_1>", "<mask_2>"]


def convert(folder: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a Pegasus checkpoint."""
    path = folder / "spiece.model"
    model = read_pieces(path)
    offset = read_settings(folder).get("offset", 103)
    special = [PAD, EOS, *_MASKS, *(f"<unk_{number}>" for number in range(2, offset))]
    # The model file has <pad> and </s> in the first two places.
    tokens = [*special, *(piece.piece for piece in model.pieces[2:])]
    return segmenter(path, model, tokens, {*special, UNK})
