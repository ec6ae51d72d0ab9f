"""Reads a SentencePiece model file."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import DecodeError

from seqserve_import.files import AGAIN, CheckpointError, read_bytes
from seqserve_import.tokenizers.pb.pieces_pb2 import Model

Piece, Trainer = Model.Piece, Model.Trainer


def read_pieces(path: Path) -> Model:
    """Reads a SentencePiece model file.

    Raises:
        CheckpointError: The file is missing, damaged, or trained with an unsupported option.
    """
    try:
        model = Model.FromString(read_bytes(path))
    except DecodeError:
        raise CheckpointError(f"{path}: is not a SentencePiece model; {AGAIN}") from None
    if not any(piece.type == Piece.NORMAL for piece in model.pieces):
        raise CheckpointError(f"{path}: has no pieces; {AGAIN}")
    if sum(piece.type == Piece.UNKNOWN for piece in model.pieces) != 1:
        raise CheckpointError(f"{path}: does not have one unknown token; {AGAIN}")
    for is_set, what in _unsupported(model):
        if is_set:
            raise CheckpointError(
                f"{path}: was trained with {what}, which is not supported; save the tokenizer as "
                "tokenizer.json with the library that made it, and import again"
            )
    return model


def _unsupported(model: Model) -> list[tuple[bool, str]]:
    trainer, bpe = model.trainer_spec, model.trainer_spec.model_type == Trainer.BPE
    defined = any(piece.type == Piece.USER_DEFINED for piece in model.pieces)
    return [
        (trainer.model_type in (Trainer.WORD, Trainer.CHAR), "words or characters as pieces"),
        (trainer.treat_whitespace_as_suffix, "treat_whitespace_as_suffix"),
        (not model.normalizer_spec.escape_whitespaces, "escape_whitespaces=false"),
        (bool(model.denormalizer_spec.precompiled_charsmap), "a denormalizer"),
        (bpe and defined, "user-defined symbols of BPE"),
    ]
