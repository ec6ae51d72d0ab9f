"""T5, mT5 and MADLAD: ``spiece.model`` has the ids, and extra ids follow; ByT5 has no file."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from seqserve_import.tokenizers.added import read_size, with_added
from seqserve_import.tokenizers.control_tokens import around, respelled
from seqserve_import.tokenizers.pieces import Piece, read_pieces
from seqserve_import.tokenizers.segmentation import segmenter
from seqserve_server.text.vocabulary import EOS, PAD, UNK

_HIDDEN = (Piece.CONTROL, Piece.UNKNOWN)


def convert(path: Path, rows: int, extra_ids: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a checkpoint whose pieces have their places in the model as ids.

    Args:
        path: The model.
        rows: Embeddings of the checkpoint; 0 if they are not known.
        extra_ids: Tokens ``<extra_id_0>`` and so on behind the pieces, if the checkpoint does not
            say how many.
    """
    model = read_pieces(path)
    count = read_size(path.parent, "extra_ids", extra_ids)
    # The first extra id is the last token.
    extra = [f"<extra_id_{number}>" for number in reversed(range(count))]
    added = with_added(path.parent, [piece.piece for piece in model.pieces] + extra, rows)
    spelled = respelled(path.parent, added.tokens)
    tokens = [spelled.get(token, token) for token in added.tokens]
    controls = [piece.piece for piece in model.pieces if piece.type in _HIDDEN]
    special = {*controls, *spelled.values(), *extra, *added.hidden}
    return segmenter(path, model, tokens, special, added.symbols)


def convert_bytes(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of ByT5, where each byte of UTF-8 is a token.

    Bytes that are no UTF-8 are left out of decoded text.
    """
    controls = [PAD, EOS, UNK]
    extra = [f"<extra_id_{number}>" for number in range(read_size(folder, "extra_ids", 125))]
    added = with_added(folder, [*controls, *_spellings(), *extra], rows)
    ids = {token: id_ for id_, token in enumerate(added.tokens)}
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, []))
    tokenizer.add_special_tokens([*controls, *extra, *added.hidden])
    tokenizer.add_tokens(added.symbols)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Replace("\N{REPLACEMENT CHARACTER}", "")]
    )
    tokenizer.post_processor = around(tokenizer)
    return tokenizer


def _spellings() -> list[str]:
    """Returns the character that stands for each byte.

    It is the byte's own in Latin-1 where that is visible, else the next one above Latin-1.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = {ord(character): character for character in alphabet if ord(character) < 256}
    above = (character for character in alphabet if ord(character) >= 256)
    return [own[byte] if byte in own else next(above) for byte in range(256)]
