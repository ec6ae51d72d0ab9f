"""T5, mT5 and MADLAD: ``spiece.model`` has the ids, and extra ids follow; ByT5 has no file."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from seqserve_import.tokenizers.files import read_settings
from seqserve_import.tokenizers.pieces import Piece, read_pieces
from seqserve_import.tokenizers.segmentation import EOS, PAD, UNK, end_of_text, segmenter


def convert(folder: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a T5 checkpoint of any kind."""
    settings = read_settings(folder)
    if settings.get("tokenizer_class") == "ByT5Tokenizer":
        return _bytes(settings.get("extra_ids", 125))
    path = folder / "spiece.model"
    model = read_pieces(path)
    # The first extra id is the last token.
    extra = [f"<extra_id_{number}>" for number in reversed(range(settings.get("extra_ids", 100)))]
    controls = [
        piece.piece for piece in model.pieces if piece.type in (Piece.CONTROL, Piece.UNKNOWN)
    ]
    tokens = [piece.piece for piece in model.pieces] + extra
    return segmenter(path, model, tokens, {*controls, *extra})


def _bytes(extra_ids: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of ByT5, where each byte of UTF-8 is a token.

    Bytes that are no UTF-8 are left out of decoded text.
    """
    controls = [PAD, EOS, UNK]
    ids = {token: id_ for id_, token in enumerate(controls + _spellings())}
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, []))
    tokenizer.add_special_tokens(controls + [f"<extra_id_{number}>" for number in range(extra_ids)])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Replace("\N{REPLACEMENT CHARACTER}", "")]
    )
    tokenizer.post_processor = end_of_text(tokenizer)
    return tokenizer


def _spellings() -> list[str]:
    """Returns the character that stands for each byte.

    It is the byte's own in Latin-1 where that is visible, else the next one above Latin-1.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = {ord(character): character for character in alphabet if ord(character) < 256}
    above = (character for character in alphabet if ord(character) >= 256)
    return [own[byte] if byte in own else next(above) for byte in range(256)]
