"""A model of Marian, read as a checkpoint."""

from collections.abc import Mapping
from typing import Any

from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.files import CheckpointError, read_mapping
from seqserve_import.marian.folder import MarianFolder, Vocabularies
from seqserve_import.marian.shortlist import read_marian_shortlist
from seqserve_import.marian.weights import SETTINGS, Bin, Npz
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.text.vocabulary import EOS

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
        self.vocabularies = Vocabularies.read(files)
        weights = Npz(files.model) if files.model.suffix == ".npz" else Bin(files.model)
        self._places = {name: (weights, name) for name in weights.names()}
        self.input_limits = weights.input_limits
        path = files.model / SETTINGS
        self.config = Settings(
            path, {"model_type": MODEL_TYPE, **read_mapping(path, weights.settings)}
        )
        self.generation = self.recommended = Settings(files.decoding.path, self._generation())

    def _generation(self) -> Mapping[str, Any]:
        decoding, vocabularies = self.files.decoding, self.vocabularies
        if EOS not in vocabularies.target:
            path = self.files.target_vocabulary
            raise CheckpointError(f"{path}: has no token {EOS}; copy it again")
        return {
            "num_beams": decoding.number("beam-size", 1),
            # Marian waits for as many hypotheses as it has beams.
            "early_stopping": True,
            "length_penalty": decoding.real("normalize", 0.0),
            "disable_unk": not decoding.flag("allow-unk", False),
            "eos_token_id": vocabularies.target.index(EOS),
            "suppress_tokens": [vocabularies.start],
        }


def shortlist_of(checkpoint: Checkpoint) -> Shortlist | None:
    """Reads the shortlist of a Marian model; None if it has none.

    Raises:
        CheckpointError: It is damaged, or does not fit the vocabularies.
    """
    if not isinstance(checkpoint, MarianCheckpoint) or not checkpoint.files.shortlist:
        return None
    sides = (checkpoint.vocabularies.source, checkpoint.vocabularies.target)
    source, target = ({token: id_ for id_, token in enumerate(tokens)} for tokens in sides)
    return read_marian_shortlist(checkpoint.files.shortlist, source, target)
