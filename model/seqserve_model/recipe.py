"""A training recipe: one TOML file, each key declared once with its default and its reason.

The file has the sections ``[model]``, ``[vocabulary]``, ``[languages]``, ``[data]``,
``[optimizer]`` and ``[training]``; a key that is left out takes its default, a key that is not
known is an error.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from seqserve.errors import OptionError
from seqserve_model.config import TransformerConfig, from_plain, to_plain

# The vocabulary decides these, so a recipe does not repeat them.
_SET_BY_VOCABULARY = {
    "vocabulary_size", "source_vocabulary_size", "pad_id", "bos_id", "eos_id", "unk_id"
}  # fmt: skip


class Precision(Enum):
    """Arithmetic of the training steps."""

    FP32 = "fp32"
    BF16 = "bf16"
    """Autocast; for GPUs. On most CPUs it is slower than fp32."""


class Metric(Enum):
    """The measure of a validation."""

    CHRF = "chrf"
    BLEU = "bleu"
    LOSS = "loss"


def _key(
    default: Any, reason: str, minimum: float | None = None, maximum: float | None = None
) -> Any:
    """Declares a key; the reason is for who reads it here."""
    return field(default=default, metadata={"minimum": minimum, "maximum": maximum})


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyRecipe:
    """The joint vocabulary."""

    size: int = _key(6144, "tokens; a multiple of 128 keeps the exported argmax quick", 261)
    characters: int = _key(
        200, "maximum number of characters with a separate token; others are bytes", 1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguagesRecipe:
    """The languages of the model, which its artifact declares."""

    source: str = _key("", "code of the source language, for calls that name no model: en, pt-BR")
    target: str = _key("", "code of the target language")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFile:
    """One of several files to train on: a section ``[[data.files]]``."""

    path: str = _key("", "TSV file, plain, gzip or bzip2, relative to the working directory")
    weight: float = _key(1.0, "how often an epoch has its pairs, on average: 2, 0.5", 0.001, 1000)
    prefix: str = _key("", "put before each source, to tell this task from the other files'")
    held_out: bool = _key(True, "whether validation and test pairs are drawn from this file too")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRecipe:
    """The parallel text, and its held-out part."""

    path: str = _key("", "TSV file, plain, gzip or bzip2, relative to the working directory")
    files: list[TrainingFile] = field(default_factory=list)
    """In place of ``path``, several files with weights."""
    augmented_path: str = _key(
        "", "file of pairs derived from the training pairs; added with its repeats, unweighted"
    )
    left_out_path: str = _key("", "file of pairs that are not trained on, such as a test of yours")
    validation_path: str = _key("", "file to watch the training by; if empty, pairs are held out")
    test_path: str = _key("", "file for the final score; if empty, pairs are held out")
    source_column: int = _key(0, "column of the source; swap the two to turn the direction", 0)
    target_column: int = _key(1, "column of the target", 0)
    max_chars: int = _key(1_000, "longer sentences are skipped as bad lines", 1)
    validation_pairs: int = _key(2_000, "held out to watch the training", 1)
    test_pairs: int = _key(2_000, "held out for the final score, never looked at before", 1)
    max_group: int = _key(16, "limit of pairs in a held-out group of linked sentences", 1)
    seed: int = _key(1, "decides which pairs are held out", 0)

    @property
    def training_files(self) -> list[TrainingFile]:
        """The files to train on, one or several."""
        return self.files or [TrainingFile(path=self.path)]

    @property
    def all_paths(self) -> list[str]:
        """Every file that a training reads."""
        paths = [file.path for file in self.training_files]
        others = (self.augmented_path, self.validation_path, self.test_path, self.left_out_path)
        return [*paths, *filter(None, others)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecipe:
    """AdamW and its learning rate."""

    learning_rate: float = _key(2e-3, "peak, reached at the end of the warm-up", 0)
    warmup_steps: int = _key(1_000, "steps of linear growth", 0)
    decay_steps: int = _key(0, "last steps over which the rate falls linearly to zero", 0)
    beta1: float = _key(0.9, "as in the paper (§5.3)", 0)
    beta2: float = _key(0.98, "as in the paper (§5.3)", 0)
    epsilon: float = _key(1e-9, "as in the paper (§5.3)", 0)
    weight_decay: float = _key(0.01, "decoupled; on matrices only", 0)
    clip_norm: float = _key(1.0, "maximum norm of the gradient; 0 does not clip", 0)
    label_smoothing: float = _key(0.1, "as in the paper (§5.4)", 0)

    def rate(self, step: int, *, max_steps: int) -> float:
        """Returns the learning rate of a step, counted from 1 to ``max_steps``.

        It grows linearly, then falls with the inverse square root of the step (§5.3). The optional
        decay lets a training of fixed length end well.
        """
        warmup = max(1, self.warmup_steps)
        rate = self.learning_rate * min(step / warmup, math.sqrt(warmup / step))
        if self.decay_steps:
            rate *= min(1.0, max(0.0, max_steps + 1 - step) / self.decay_steps)
        return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """How long, in what portions, and what is kept."""

    start_from: str = _key("", "run whose weights and vocabulary to begin with, of this network")
    max_steps: int = _key(10_000, "updates of the weights", 1)
    max_tokens: int = _key(4_096, "limit of tokens in a batch, both sides and padding counted", 1)
    accumulate: int = _key(1, "batches per update, where memory holds only a small batch", 1)
    precision: Precision = _key(Precision.FP32, "bf16 is for GPUs")
    seed: int = _key(1, "decides weights, dropout and the order of batches", 0)
    save_every: int = _key(500, "steps between checkpoints", 1)
    keep: int = _key(5, "latest checkpoints that stay on disk", 1)
    average: int = _key(5, "latest checkpoints whose mean is the result (§6.1)", 1)
    validate_every: int = _key(1_000, "steps between validations", 1)
    scored_pairs: int = _key(500, "validation pairs that are translated and scored", 1)
    max_decoding_length: int = _key(64, "limit of target tokens in a validation", 1)
    metric: Metric = _key(Metric.CHRF, "decides which checkpoint is the best")
    patience: int = _key(0, "validations without a better one before training stops; 0: never", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides a training."""

    model: Mapping[str, Any]
    vocabulary: VocabularyRecipe
    data: DataRecipe
    optimizer: OptimizerRecipe
    training: TrainingRecipe
    languages: LanguagesRecipe = field(default_factory=LanguagesRecipe)

    @classmethod
    def load(cls, path: Path) -> Recipe:
        """Reads a TOML file."""
        try:
            return cls.from_dict(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise OptionError(f"{path}: is not TOML: {error}") from None
        except OptionError as error:
            raise OptionError(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recipe:
        """Builds a recipe from the content of a TOML file, as :meth:`load` does."""
        sections = typing.get_type_hints(cls)
        for name, section in content.items():
            if name not in sections:
                raise OptionError(f"[{name}] is not known; known are {', '.join(sections)}")
            if not isinstance(section, dict):
                raise OptionError(f"{name} is not a section; write [{name}]")
        model = _model_section(content.get("model", {}))
        del sections["model"], sections["data"]
        others = {
            name: from_plain(kind, name, content.get(name, {})) for name, kind in sections.items()
        }
        data = _data_section(content.get("data", {}))
        return cls(model=model, data=data, **others)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values from which :meth:`from_dict` builds the same recipe."""
        plain = dataclasses.asdict(self, dict_factory=to_plain)
        return {**plain, "model": dict(self.model)}


def _model_section(values: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in values:
        if name in _SET_BY_VOCABULARY:
            raise OptionError(f"model.{name} is set by the vocabulary; remove it")
    TransformerConfig.from_dict(values)
    return values


def _data_section(values: Mapping[str, Any]) -> DataRecipe:
    listed = values.get("files", [])
    if not isinstance(listed, list) or not all(isinstance(section, dict) for section in listed):
        raise OptionError("data.files is not a list of sections; write [[data.files]] above each")
    files = [
        from_plain(TrainingFile, f"data.files[{number}]", section)
        for number, section in enumerate(listed)
    ]
    rest = {name: value for name, value in values.items() if name != "files"}
    data = dataclasses.replace(from_plain(DataRecipe, "data", rest), files=files)
    if bool(data.path) == bool(files):
        reason = "and data.files exclude each other" if files else "is missing"
        raise OptionError(
            f"data.path {reason}; name the TSV file to train on, or several in [[data.files]]"
        )
    for number, file in enumerate(files):
        if not file.path:
            raise OptionError(f"data.files[{number}].path is missing; name a TSV file to train on")
    return data
