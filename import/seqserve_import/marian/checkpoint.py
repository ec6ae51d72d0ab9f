"""A model of Marian, read as a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqserve_import.checkpoint import Checkpoint, CheckpointError, Settings
from seqserve_import.marian.folder import MarianFolder
from seqserve_import.marian.shortlist import read_marian_shortlist
from seqserve_import.marian.weights import SETTINGS, Bin, Npz
from seqserve_import.marian.yml import parse
from seqserve_import.tokenizers.marian_native import read_tokens
from seqserve_import.tokenizers.segmentation import EOS
from seqserve_server.engine.shortlist import Shortlist

MODEL_TYPE = "marian-native"
"""Stands for the ``model_type`` of Hugging Face, where ``marian`` is OPUS-MT as converted."""


class MarianCheckpoint(Checkpoint):
    """A folder of a model of Marian, with the same parts as one of Hugging Face."""

    def __init__(self, files: MarianFolder) -> None:
        """Reads the settings and finds the weights.

        Raises:
            CheckpointError: A file is damaged, or of a kind that cannot be imported.
        """
        self.files = files
        self.folder = files.model.parent
        weights = Npz(files.model) if files.model.suffix == ".npz" else Bin(files.model)
        self._files = dict.fromkeys(weights.names(), weights)
        self.input_limits = weights.input_limits
        path = files.model / SETTINGS
        self.config = Settings(path, {"model_type": MODEL_TYPE, **parse(path, weights.settings)})
        self.generation = Settings(files.decoding.path, _generation(files))


def open_checkpoint(folder: Path) -> Checkpoint:
    """Opens a folder of Hugging Face or of Marian.

    Raises:
        CheckpointError: It is neither, or a file is missing or damaged.
    """
    files = MarianFolder.find(folder)
    return MarianCheckpoint(files) if files else Checkpoint(folder)


def shortlist_of(checkpoint: Checkpoint) -> Shortlist | None:
    """Reads the shortlist that a model of Marian comes with; None if there is none.

    Raises:
        CheckpointError: It is damaged, or does not fit the vocabularies.
    """
    files = checkpoint.files if isinstance(checkpoint, MarianCheckpoint) else None
    if not files or not files.shortlist:
        return None
    sides = (files.source_vocabulary, files.target_vocabulary)
    source, target = (
        {token: number for number, token in enumerate(read_tokens(path))} for path in sides
    )
    return read_marian_shortlist(files.shortlist, source, target)


def _generation(files: MarianFolder) -> Mapping[str, Any]:
    """Gives the settings of generation under the names of Hugging Face."""
    decoding, tokens = files.decoding, read_tokens(files.target_vocabulary)
    if EOS not in tokens:
        raise CheckpointError(f"{files.target_vocabulary}: has no token {EOS}; copy it again")
    return {
        "num_beams": decoding.number("beam-size", 1),
        "length_penalty": decoding.real("normalize", 0.0),
        "disable_unk": not decoding.flag("allow-unk", False),
        "eos_token_id": tokens.index(EOS),
        # A target starts from a vector of zeros: that of a token that is added.
        "pad_token_id": len(tokens),
        "suppress_tokens": [len(tokens)],
    }
