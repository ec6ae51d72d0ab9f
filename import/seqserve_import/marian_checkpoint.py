"""A model of Marian: the files of its folder, its vocabularies, and both read as a checkpoint.

A file ``*.yml`` that names models, as Marian and the translation models of Firefox come with one,
says which files belong together. Without it their names do: ``model.enpt.intgemm.alphas.bin``,
``vocab.enpt.spm`` (or ``srcvocab`` and ``trgvocab``), ``lex.50.50.enpt.s2t.bin``. Each of the files
may be compressed, as ``….gz``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seqserve_import.checkpoint import Checkpoint, Settings
from seqserve_import.files import AGAIN, CheckpointError, in_order_of_ids, read_bytes, read_mapping
from seqserve_import.marian_shortlist import read_marian_shortlist
from seqserve_import.marian_weights import SETTINGS, Bin, Npz
from seqserve_import.tokenizers.segmentation import read_pieces
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.text.vocabulary import EOS, PAD

HUGGING_FACE = ("*.safetensors*", "pytorch_model*")
"""Its weights, beside which no others are read."""
_VOCABULARIES = (".spm", ".yml", ".yaml", ".json")
_APART = "put each model into a separate folder, with its vocabularies"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarianFolder:
    """The files of one model."""

    model: Path
    source_vocabulary: Path
    target_vocabulary: Path
    shortlist: Path | None
    """Likely target tokens of each source token, ``lex.*.bin``."""
    decoding: Settings
    """The makers' decoding options, from the ``*.yml``; none without that file."""

    @classmethod
    def find(cls, folder: Path) -> MarianFolder | None:
        """Finds the files; None if the folder has no model of Marian.

        Raises:
            CheckpointError: It has several models, or a file is missing.
        """
        if any(path for pattern in HUGGING_FACE for path in folder.glob(pattern)):
            return None
        described = {
            path: values
            for path in sorted(folder.glob("*.yml"))
            if "models" in (values := read_mapping(path, read_bytes(path)))
        }
        if len(described) > 1:
            raise _several(folder, described)
        for path, values in described.items():
            return cls._described(Settings(path, values))
        return cls._named(folder)

    @classmethod
    def _described(cls, decoding: Settings) -> MarianFolder:
        vocabularies = decoding.texts("vocabs")
        if len(models := decoding.texts("models")) != 1:
            raise decoding.wrong("models", "must name one model: ensembles cannot be imported")
        if len(vocabularies) != 2:
            raise decoding.wrong("vocabs", "must name two vocabularies, which may be the same")
        model, source, target = (_beside(decoding, name) for name in (models[0], *vocabularies))
        return cls(
            model=model,
            source_vocabulary=source,
            target_vocabulary=target,
            shortlist=_only(_files(decoding.path.parent, "lex*.bin")),
            decoding=decoding,
        )

    @classmethod
    def _named(cls, folder: Path) -> MarianFolder | None:
        models = [
            *_files(folder, "model*.*.bin"),
            *(path for path in _files(folder, "*.npz") if ".optimizer." not in path.name),
        ]
        if not models:
            return None
        if len(models) > 1:
            raise _several(folder, models)
        source = _vocabulary(folder, "srcvocab*") or _vocabulary(folder, "vocab*")
        target = _vocabulary(folder, "trgvocab*") or _vocabulary(folder, "vocab*")
        if not source or not target:
            raise CheckpointError(
                f"{folder}: the vocabulary of {models[0].name} is missing: copy vocab.*.spm, or"
                " srcvocab.*.spm and trgvocab.*.spm, there, or a decoder.yml that names the files"
            )
        return cls(
            model=models[0],
            source_vocabulary=source,
            target_vocabulary=target,
            shortlist=_only(_files(folder, "lex*.bin")),
            decoding=Settings(folder / "decoder.yml", {}),
        )


def _beside(decoding: Settings, name: str) -> Path:
    """Finds a file that is named where it lay for its makers."""
    path = decoding.path.parent / Path(name).name
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        if candidate.is_file():
            return candidate
    raise CheckpointError(f"{path}: is missing; {decoding.path.name} names it")


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted([*folder.glob(pattern), *folder.glob(f"{pattern}.gz")])


def _vocabulary(folder: Path, pattern: str) -> Path | None:
    files = [path for kind in _VOCABULARIES for path in _files(folder, f"{pattern}{kind}")]
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise CheckpointError(
            f"{folder}: has several vocabularies ({names}); rename them to srcvocab.* and"
            " trgvocab.*, or add a decoder.yml that names the files"
        )
    return _only(files)


def _only(files: list[Path]) -> Path | None:
    return files[0] if len(files) == 1 else None


def _several(folder: Path, models: Iterable[Path]) -> CheckpointError:
    names = ", ".join(path.name for path in models)
    return CheckpointError(f"{folder}: has several models ({names}); {_APART}")


_BLOCK = 128
"""The number of embeddings becomes a multiple of it, so that the best token is found quickly."""


class Vocabularies(NamedTuple):
    """The tokens of both sides, and an added token, from which targets start."""

    source: list[str]
    target: list[str]
    is_joint: bool
    """Whether both sides have one vocabulary, as most models have."""

    @classmethod
    def read(cls, files: MarianFolder) -> Vocabularies:
        """Reads the vocabularies of a model."""
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
    """Returns the tokens of a vocabulary in the order of their ids."""
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
    """Returns whether a vocabulary is a SentencePiece model."""
    return path.name.removesuffix(".gz").endswith(".spm")


MODEL_TYPE = "marian-native"
"""Stands for the ``model_type`` of Hugging Face, where ``marian`` is OPUS-MT as converted."""


class MarianCheckpoint(Checkpoint):
    """A folder of a model of Marian, with the same parts as one of Hugging Face."""

    def __init__(self, files: MarianFolder) -> None:
        self.files = files
        self.folder = files.model.parent
        self.vocabularies = Vocabularies.read(files)
        weights = Npz(files.model) if files.model.suffix == ".npz" else Bin(files.model)
        self._places = {name: (weights, name) for name in weights.shapes}
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
    """Reads the shortlist of a Marian model; None if it has none."""
    if not isinstance(checkpoint, MarianCheckpoint) or not checkpoint.files.shortlist:
        return None
    sides = (checkpoint.vocabularies.source, checkpoint.vocabularies.target)
    source, target = ({token: id_ for id_, token in enumerate(tokens)} for tokens in sides)
    return read_marian_shortlist(checkpoint.files.shortlist, source, target)
