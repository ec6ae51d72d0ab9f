"""M2M-100, NLLB and mBART, whose ids are those of fairseq: its own four control tokens come first.

Languages follow the pieces. Texts are encoded without one: which is wanted, and where it stands, is
up to each request.
"""

from __future__ import annotations

from pathlib import Path

import tokenizers

from seqserve.errors import OptionError
from seqserve_import.tokenizers.files import AGAIN, read_rows, read_settings, read_vocabulary
from seqserve_import.tokenizers.languages import M2M100, MBART, MBART50, NLLB, WMT21
from seqserve_import.tokenizers.pb.pieces_pb2 import Model
from seqserve_import.tokenizers.pieces import Piece, read_pieces
from seqserve_import.tokenizers.segmentation import EOS, PAD, UNK, segmenter

_CONTROLS = ["<s>", PAD, EOS, UNK]
_MASK = "<mask>"


def convert_m2m100(folder: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of an M2M-100 or NLLB checkpoint; only M2M-100 has a vocab.json."""
    path = folder / "sentencepiece.bpe.model"
    vocabulary = folder / "vocab.json"
    if not vocabulary.exists():
        return _convert(path, read_pieces(path), NLLB)
    codes = WMT21 if read_settings(folder).get("language_codes") == "wmt21" else M2M100
    languages = [f"__{code}__" for code in codes]
    tokens = read_vocabulary(vocabulary) + languages
    special = {*_CONTROLS, *languages}
    return segmenter(path, read_pieces(path), tokens, special, rows=read_rows(folder))


def convert_mbart(folder: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of an mBART checkpoint, with 25 or 52 languages.

    The class of the tokenizer tells which; where it is not named, the number of embeddings does.
    """
    path = folder / "sentencepiece.bpe.model"
    model = read_pieces(path)
    name = read_settings(folder).get("tokenizer_class")
    if name is None:
        fifty = read_rows(folder) >= len(_tokens(path, model, MBART50))
    else:
        fifty = name.startswith("MBart50")
    return _convert(path, model, MBART50 if fifty else MBART)


def _convert(path: Path, model: Model, languages: list[str]) -> tokenizers.Tokenizer:
    tokens = _tokens(path, model, languages)
    return segmenter(path, model, tokens, {*_CONTROLS, *languages, _MASK})


def _tokens(path: Path, model: Model, languages: list[str]) -> list[str]:
    return [*_CONTROLS, *_pieces(path, model), *languages, _MASK]


def _pieces(path: Path, model: Model) -> list[str]:
    """Returns the pieces behind the first three, which are control tokens with other ids."""
    if any(piece.type == Piece.NORMAL for piece in model.pieces[:3]):
        raise OptionError(f"{path}: does not begin with <unk>, <s> and </s>; {AGAIN}")
    return [piece.piece for piece in model.pieces[3:]]
