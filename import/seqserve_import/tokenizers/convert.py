"""Finds the tokenizer of a checkpoint, by the files that it has, and converts it."""

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from seqserve_export.tolerance import ParityError
from seqserve_import.files import CheckpointError
from seqserve_import.tokenizers import ctranslate2, marian, sentence_pieces
from seqserve_import.tokenizers.special import read_settings
from seqserve_import.tokenizers.vocabulary_files import (
    BYTE_LEVEL_FILES,
    WORD_PIECES_FILE,
    convert_byte_level,
    convert_word_pieces,
    read_tokenizer,
)
from seqserve_server.text.tokenizer import Tokenizer


class _Own(NamedTuple):
    convert: Callable[[Path, int], tokenizers.Tokenizer]
    convert_target: Callable[[Path, int], tokenizers.Tokenizer | None]
    pieces_of: Callable[[Path], Path | None]


_OF_THEIR_OWN = {
    "marian": _Own(marian.convert, marian.convert_target, lambda folder: folder / "source.spm"),
    "marian-native": _Own(
        marian.convert_native, marian.convert_native_target, marian.native_pieces_of
    ),
    "ctranslate2": _Own(ctranslate2.convert, ctranslate2.convert_target, ctranslate2.pieces_of),
}
"""Families with a separate vocabulary file, whose targets may be divided by another rule."""
_PIECES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")


def convert(folder: Path, model_type: str, rows: int = 0) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a checkpoint; ids are the checkpoint's.

    Its post-processor appends the end token; BART's also puts ``<s>`` in front. It sets no
    language. A ``tokenizer.json`` is taken as it is, except for Marian: there it is not an original
    file, and cannot hold both sides.

    Args:
        model_type: The entry of that name in its ``config.json``.
        rows: Embeddings of a source token; 0 if they are not known.

    Raises:
        CheckpointError: The tokenizer or a file is missing, damaged or not supported.
    """
    if model_type in _OF_THEIR_OWN:
        return _OF_THEIR_OWN[model_type].convert(folder, rows)
    if (folder / "tokenizer.json").exists():
        return read_tokenizer(folder, model_type)
    if read_settings(folder).get("tokenizer_class") == "ByT5Tokenizer":
        return sentence_pieces.convert_byt5(folder, rows)
    pieces = pieces_of(folder, model_type)
    if pieces is not None:
        return _of_pieces(pieces, model_type, rows)
    if all((folder / name).exists() for name in BYTE_LEVEL_FILES):
        return convert_byte_level(folder, rows)
    if (folder / WORD_PIECES_FILE).exists():
        return convert_word_pieces(folder, rows)
    raise CheckpointError(
        f"{folder}: has no tokenizer that can be read; it takes tokenizer.json, one of"
        f" {', '.join(_PIECES)}, {' and '.join(BYTE_LEVEL_FILES)}, or {WORD_PIECES_FILE}. If"
        " transformers reads the folder: AutoTokenizer.from_pretrained(FOLDER)"
        ".save_pretrained(FOLDER) writes a tokenizer.json"
    )


def _of_pieces(path: Path, model_type: str, rows: int) -> tokenizers.Tokenizer:
    is_fairseq = path.name == "sentencepiece.bpe.model"
    if (path.parent / "vocab.json").exists():
        return sentence_pieces.convert_m2m100(path, rows)
    if is_fairseq and model_type == "m2m_100":
        return sentence_pieces.convert_nllb(path, rows)
    if is_fairseq and model_type == "mbart":
        return sentence_pieces.convert_mbart(path, rows)
    if model_type == "pegasus":
        return sentence_pieces.convert_pegasus(path, rows)
    return sentence_pieces.convert_t5(path, rows, extra_ids=100 if model_type.endswith("t5") else 0)


def pieces_of(folder: Path, model_type: str) -> Path | None:
    """Finds the SentencePiece model that divides sources; None if another file does."""
    if model_type in _OF_THEIR_OWN:
        return _OF_THEIR_OWN[model_type].pieces_of(folder)
    if (folder / "tokenizer.json").exists():
        return None
    return next((folder / name for name in _PIECES if (folder / name).exists()), None)


def convert_target(folder: Path, model_type: str, rows: int = 0) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets as :func:`convert` does; None if sources have the same."""
    own = _OF_THEIR_OWN.get(model_type)
    return own and own.convert_target(folder, rows)


_MIN_SHARE = 0.9
"""Minimum share of sentences with equal tokens. Divisions of equal score may differ."""


def check_tokens(
    path: Path, tokenizer: Tokenizer, symbols: Collection[str], texts: Sequence[str]
) -> str:
    """Divides sources both ways; returns a line of the report, empty without SentencePiece.

    Args:
        symbols: Tokens of the checkpoint that are not pieces of the model and that texts may spell.

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
    ids = map(tokenizer.source.id_of, pieces)
    return [tokenizer.unk_id if id_ is None else id_ for id_ in ids]


def _parts(symbols: Collection[str], text: str) -> list[str]:
    if not symbols:
        return [text]
    pattern = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
    return [part for part in re.split(f"({pattern})", text) if part]
