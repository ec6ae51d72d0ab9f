"""The tokenizers of CTranslate2's folders, with the ids of the folder's vocabularies.

CTranslate2 itself reads tokens, so the tokenizer in a folder depends on its makers: SentencePiece
models, a ``tokenizer.json``, the two files of BART, or nothing, if spaces separate the words.
OpenNMT reads sources without an end token.
"""

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, processors

from seqserve_import.ctranslate2_checkpoint import (
    CTranslate2Checkpoint,
    model_folder,
    package_pair,
)
from seqserve_import.files import AGAIN, CheckpointError
from seqserve_import.tokenizers.marian import LANGUAGE, words
from seqserve_import.tokenizers.segmentation import Piece, controls_of, read_pieces, segmenter
from seqserve_import.tokenizers.special import CONTROLS, around, language_of
from seqserve_import.tokenizers.subword_nmt import FILE, convert_bpe
from seqserve_import.tokenizers.vocabulary_files import (
    BYTE_LEVEL_FILES,
    convert_byte_level,
    read_tokenizer,
)

_JOINT = ("sentencepiece.model", "joint.spm.model", "sentencepiece.bpe.model", "spiece.model")
_PIECES = {
    "source": ("source.spm", "src.spm.model", *_JOINT, "spm.model", "tokenizer.model"),
    "target": ("target.spm", "tgt.spm.model", *_JOINT, "spm.model", "tokenizer.model"),
}
_HIDDEN = ("<blank>", "<mask>", "<extra_id_")
"""Beginnings of tokens that no text spells."""


def convert(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of sources, which decodes targets too if both are divided alike."""
    checkpoint = _opened(folder)
    made = _side(checkpoint, "source", rows)
    if checkpoint.reads_end:
        made.post_processor = around(made, has_front=checkpoint.reads_begin or _has_front(made))
    else:
        begin = [(CONTROLS[0], made.token_to_id(CONTROLS[0]))] if checkpoint.reads_begin else []
        front = [token for token, _ in begin]
        made.post_processor = processors.TemplateProcessing(
            single=[*front, "$A"], special_tokens=begin
        )
    return made


def convert_target(folder: Path, rows: int) -> tokenizers.Tokenizer | None:
    """Returns the tokenizer of targets; None if sources have the same."""
    checkpoint = _opened(folder)
    source, target = (_pieces(checkpoint, side) for side in _PIECES)
    is_divided_alike = source == target or (
        source and target and read_pieces(source) == read_pieces(target)
    )
    if checkpoint.vocabularies.is_joint and is_divided_alike:
        return None
    return _side(checkpoint, "target", rows)


def pieces_of(folder: Path) -> Path | None:
    """Finds the SentencePiece model that divides sources; None if another file does."""
    return _pieces(_opened(folder), "source")


def _opened(folder: Path) -> CTranslate2Checkpoint:
    model = model_folder(folder)
    assert model, "a checkpoint of CTranslate2 was opened before"
    return CTranslate2Checkpoint(folder, model)


def _pieces(checkpoint: CTranslate2Checkpoint, side: str) -> Path | None:
    folder = checkpoint.folder
    if (folder / "tokenizer.json").exists() and checkpoint.layout != "marian":
        return None
    return next((folder / name for name in _PIECES[side] if (folder / name).exists()), None)


def _side(checkpoint: CTranslate2Checkpoint, side: str, rows: int) -> tokenizers.Tokenizer:
    folder, vocabularies = checkpoint.folder, checkpoint.vocabularies
    tokens = vocabularies.source if side == "source" else vocabularies.target
    if checkpoint.adds_start:
        tokens = vocabularies.with_start(tokens)
    if pieces := _pieces(checkpoint, side):
        return _of_pieces(checkpoint, pieces, tokens, rows)
    if (folder / FILE).exists():
        return convert_bpe(folder / FILE, tokens, rows, *package_pair(folder))
    if (folder / "tokenizer.json").exists():
        return _checked(
            folder / "tokenizer.json", read_tokenizer(folder, checkpoint.layout), tokens
        )
    if all((folder / name).exists() for name in BYTE_LEVEL_FILES):
        return _checked(folder / BYTE_LEVEL_FILES[0], convert_byte_level(folder, rows), tokens)
    return words(folder / f"{side}_vocabulary", tokens)


def _of_pieces(
    checkpoint: CTranslate2Checkpoint, path: Path, tokens: Sequence[str], rows: int
) -> tokenizers.Tokenizer:
    model = read_pieces(path)
    known = {piece.piece for piece in model.pieces if piece.type == Piece.NORMAL}
    names_languages = checkpoint.layout in ("m2m_100", "mbart")
    special = {
        token
        for token in tokens
        if token in CONTROLS
        or token.startswith(_HIDDEN)
        or (names_languages and language_of(token) and token not in known)
    }
    languages = [
        AddedToken(token, normalized=False) for token in tokens if LANGUAGE.fullmatch(token)
    ]
    return segmenter(path, model, tokens, special | controls_of(model), languages, rows)


def _checked(path: Path, made: tokenizers.Tokenizer, tokens: Sequence[str]) -> tokenizers.Tokenizer:
    ids = {token: id_ for id_, token in enumerate(tokens)}
    for token, id_ in made.get_vocab().items():
        if ids.get(token, id_) != id_ or id_ >= len(tokens):
            raise CheckpointError(
                f"{path}: the token {token!r:.80} has the id {id_}, but {ids.get(token, 'none')}"
                f" in the vocabulary of model.bin; {AGAIN}"
            )
    return made


def _has_front(made: tokenizers.Tokenizer) -> bool:
    ids = made.encode("").ids
    return len(ids) > 1 and ids[0] == made.token_to_id(CONTROLS[0])
