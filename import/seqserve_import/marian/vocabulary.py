"""The vocabularies of a model of Marian: ``.spm``, or tokens and their ids as YAML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from seqserve_import.files import AGAIN, CheckpointError, in_order_of_ids, read_bytes, read_mapping
from seqserve_import.marian.folder import MarianFolder
from seqserve_import.tokenizers.segmentation import read_pieces
from seqserve_server.text.vocabulary import PAD

_BLOCK = 128
"""Embeddings become a multiple of it, for which the best token is found quickly."""


class Vocabularies(NamedTuple):
    """The tokens of both sides, and an added token, from which targets start."""

    source: list[str]
    target: list[str]
    is_joint: bool
    """Whether both sides have one vocabulary, as most models have."""

    @classmethod
    def read(cls, files: MarianFolder) -> Vocabularies:
        """Reads the vocabularies of a model.

        Raises:
            SeqserveError: A file is damaged, or of another kind.
        """
        source, target = files.source_vocabulary, files.target_vocabulary
        is_joint = read_bytes(source) == read_bytes(target)
        tokens = read_tokens(source)
        return cls(tokens, tokens if is_joint else read_tokens(target), is_joint)

    @property
    def start(self) -> int:
        """Id of the added token, the same for both sides."""
        return max(len(self.source), len(self.target))

    @property
    def rows(self) -> int:
        """Number of embeddings of each side, with those that no token has."""
        return -(-(self.start + 1) // _BLOCK) * _BLOCK

    def with_start(self, tokens: list[str]) -> list[str]:
        """Returns the tokens of one side with the added token, as ``<pad>``."""
        unused = (f"<unused_{number}>" for number in range(self.start - len(tokens)))
        return [*tokens, *unused, PAD]


def read_tokens(path: Path) -> list[str]:
    """Returns the tokens of a vocabulary in the order of their ids.

    Raises:
        SeqserveError: The file is damaged, or of another kind.
    """
    if is_spm(path):
        return [piece.piece for piece in read_pieces(path).pieces]
    if path.name.endswith((".fsv", ".fsv.gz")):
        raise CheckpointError(f"{path}: is a factored vocabulary, which cannot be imported")
    ids = read_mapping(path, read_bytes(path), is_typed=False)
    try:
        numbers = {token: int(number) for token, number in ids.items()}
    except (TypeError, ValueError):
        raise CheckpointError(f"{path}: does not map each token to its id; {AGAIN}") from None
    return in_order_of_ids(path, numbers)


def is_spm(path: Path) -> bool:
    """Tells whether a vocabulary is one of SentencePiece."""
    return path.name.removesuffix(".gz").endswith(".spm")
