"""Finds the tokenizer of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from seqserve_import.checkpoint import CheckpointError


def convert(folder: Path, model_type: str) -> tokenizers.Tokenizer:
    """Reads the tokenizer of a checkpoint; its ids are those of the checkpoint.

    Args:
        folder: Of the checkpoint.
        model_type: As its config.json names it.

    Raises:
        CheckpointError: There is no tokenizer, or it cannot be read.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: has no tokenizer.json; load its tokenizer with transformers and save it"
            " with save_pretrained"
        )
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise CheckpointError(f"{path}: is not a tokenizer.json: {error}") from None
