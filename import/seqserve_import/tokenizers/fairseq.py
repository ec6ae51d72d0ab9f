"""M2M-100, NLLB and mBART, whose ids are those of fairseq: its own four control tokens come first.

Languages follow the pieces. Texts are encoded without one: which is wanted, and where it stands, is
up to each request.
"""

from __future__ import annotations

from pathlib import Path

import tokenizers

from seqserve_import.files import AGAIN, CheckpointError, in_order_of_ids, read_object
from seqserve_import.tokenizers.added import read_settings, with_added
from seqserve_import.tokenizers.languages import M2M100, MBART, MBART50, NLLB, WMT21
from seqserve_import.tokenizers.pb.pieces_pb2 import Model
from seqserve_import.tokenizers.pieces import Piece, read_pieces
from seqserve_import.tokenizers.segmentation import segmenter
from seqserve_server.text.vocabulary import EOS, PAD, UNK

_CONTROLS = ["<s>", PAD, EOS, UNK]
_MASK = "<mask>"


def convert_m2m100(path: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of M2M-100, whose ids are in ``vocab.json``."""
    vocabulary = path.with_name("vocab.json")
    codes = WMT21 if read_settings(path.parent).get("language_codes") == "wmt21" else M2M100
    languages = [f"__{code}__" for code in codes]
    tokens = in_order_of_ids(vocabulary, read_object(vocabulary)) + languages
    added = with_added(path.parent, tokens, rows)
    special = {*_CONTROLS, *languages, *added.hidden}
    return segmenter(path, read_pieces(path), added.tokens, special, added.symbols, rows)


def convert_nllb(path: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of NLLB."""
    return _convert(path, read_pieces(path), NLLB, rows)


def convert_mbart(path: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of mBART, with 25 or 52 languages.

    The class of the tokenizer tells which; where it is not named, the number of embeddings does.
    """
    model = read_pieces(path)
    name = read_settings(path.parent).get("tokenizer_class")
    if name is None:
        has_52 = rows >= len(_tokens(path, model, MBART50))
    else:
        has_52 = str(name).startswith("MBart50")
    return _convert(path, model, MBART50 if has_52 else MBART, rows)


def _convert(path: Path, model: Model, languages: list[str], rows: int) -> tokenizers.Tokenizer:
    added = with_added(path.parent, _tokens(path, model, languages), rows)
    special = {*_CONTROLS, *languages, _MASK, *added.hidden}
    return segmenter(path, model, added.tokens, special, added.symbols)


def _tokens(path: Path, model: Model, languages: list[str]) -> list[str]:
    return [*_CONTROLS, *_pieces(path, model), *languages, _MASK]


def _pieces(path: Path, model: Model) -> list[str]:
    """Returns the pieces behind the first three, which are control tokens with other ids."""
    if any(piece.type == Piece.NORMAL for piece in model.pieces[:3]):
        raise CheckpointError(f"{path}: does not begin with <unk>, <s> and </s>; {AGAIN}")
    return [piece.piece for piece in model.pieces[3:]]
