"""Reads the folder of a checkpoint: settings at once, weights one at a time.

The weights lie in ``model.safetensors`` or ``pytorch_model.bin``, or in shards that a file
``….index.json`` lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor

from seqserve.errors import SeqserveError
from seqserve_import.weight_files import Safetensors, TorchFile, Weights

T = TypeVar("T")

_FILES = ("model.safetensors", "pytorch_model.bin")
_OTHERS = {
    "*.onnx": "ONNX graphs, which hold weights without their names",
    "tf_model.h5": "weights of TensorFlow",
    "flax_model.msgpack": "weights of Flax",
    "*.gguf": "weights in GGUF",
    "model.bin": "a model of CTranslate2",
}
_ROWS_COMPARED = 1 << 14


class CheckpointError(SeqserveError):
    """A checkpoint is damaged, or of a kind that cannot be imported."""


class Settings:
    """The values of a JSON file; reading one checks its type and names it in errors."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        """Takes the values; one that is null counts as missing."""
        self.path = path
        self._values = {name: value for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Reads a file.

        Raises:
            CheckpointError: It is missing, or holds no JSON object.
        """
        return cls(path, _read_json(path))

    def over(self, others: Settings) -> Settings:
        """Gives all values of both, its own where both have one."""
        return Settings(self.path, {**others._values, **self._values})

    def some(self, names: Iterable[str]) -> dict[str, Any]:
        """Gives some values as they are, without those that are missing."""
        return {name: self._values[name] for name in names if name in self._values}

    def has(self, name: str) -> bool:
        """Tells whether there is a value."""
        return name in self._values

    def number(self, name: str, default: int | None = None) -> int:
        """Gives a whole number."""
        return self._value(name, int, default)

    def optional_number(self, name: str) -> int | None:
        """Gives a whole number, or None if it is missing."""
        return self.number(name) if self.has(name) else None

    def real(self, name: str, default: float | None = None) -> float:
        """Gives a number."""
        value = self._values.get(name)
        return float(value) if type(value) is int else self._value(name, float, default)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Gives true or false."""
        return self._value(name, bool, default)

    def text(self, name: str, default: str | None = None) -> str:
        """Gives a text."""
        return self._value(name, str, default)

    def texts(self, name: str) -> list[str]:
        """Gives a list of texts, empty if it is missing."""
        found = self._value(name, list, [])
        if not all(isinstance(text, str) for text in found):
            raise self.wrong(name, "is no list of texts")
        return found

    def numbers(self, name: str) -> list[int]:
        """Gives a list of whole numbers, empty if it is missing; a single one makes a list too."""
        found = self._values.get(name, [])
        found = found if isinstance(found, list) else [found]
        if not all(type(number) is int for number in found):
            raise self.wrong(name, "is no list of whole numbers")
        return found

    def number_lists(self, name: str) -> list[list[int]]:
        """Gives a list of lists of whole numbers, empty if it is missing."""
        found = self._value(name, list, [])
        for inner in found:
            if not isinstance(inner, list) or not all(type(number) is int for number in inner):
                raise self.wrong(name, "is no list of lists of whole numbers")
        return found

    def wrong(self, name: str, problem: str) -> CheckpointError:
        """Makes the error of a value."""
        value = self._values.get(name)
        shown = "" if value is None else f" (it is {value!r:.80})"
        return CheckpointError(f"{self.path}: {name} {problem}{shown}")

    def _value(self, name: str, kind: type[T], default: T | None) -> T:
        value = self._values.get(name, default)
        if value is None:
            raise self.wrong(name, "is missing")
        if type(value) is not kind:
            raise self.wrong(name, f"is not of type {kind.__name__}")
        return value


class Checkpoint:
    """A folder of a model of Hugging Face."""

    input_limits: Mapping[str, float] = MappingProxyType({})
    """The largest absolute input of projections on real text, by the names of their weights, where
    the makers of the checkpoint have measured it."""

    def __init__(self, folder: Path) -> None:
        """Reads the settings and finds the weights.

        Raises:
            CheckpointError: A file is missing or damaged, or is of a kind that cannot be imported.
        """
        if not folder.is_dir():
            raise CheckpointError(
                f"{folder}: is no folder; download a checkpoint first, such as with"
                " `hf download NAME --local-dir FOLDER`"
            )
        self.folder = folder
        weights = _weight_files(folder)
        self.config = Settings.read(folder / "config.json")
        path = folder / "generation_config.json"
        generation = Settings.read(path) if path.exists() else Settings(path, {})
        self.generation = generation.over(self.config)
        """What generation needs: the values of generation_config.json over those of config.json."""
        self._files: dict[str, Weights] = {}
        for file in weights:
            opened = _open(file)
            self._files.update(dict.fromkeys(opened.names(), opened))

    @property
    def names(self) -> set[str]:
        """The names of all weights."""
        return set(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Gives the shape of a weight."""
        return self._file(name).shape(name)

    def tensor(self, name: str) -> Tensor:
        """Reads a weight as fp32.

        Raises:
            CheckpointError: There is none of this name, or it is no floating-point number.
        """
        tensor = self._file(name).tensor(name)
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{self.folder}: {name} is of type {tensor.dtype}; take the checkpoint as it was"
                " before it was quantised"
            )
        return tensor.float()

    def are_equal(self, name: str, other: str) -> bool:
        """Tells whether two weights hold the same numbers, reading some rows at a time."""
        shape = self.shape(name)
        if shape != self.shape(other):
            return False
        first, second = self._file(name), self._file(other)
        for start in range(0, shape[0], _ROWS_COMPARED):
            end = start + _ROWS_COMPARED
            if not torch.equal(first.rows(name, start, end), second.rows(other, start, end)):
                return False
        return True

    def _file(self, name: str) -> Weights:
        if name not in self._files:
            raise CheckpointError(f"{self.folder}: the weight {name} is missing")
        return self._files[name]


def _weight_files(folder: Path) -> list[Path]:
    """Lists the files of the weights, those of safetensors first."""
    for name in _FILES:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            parts = _read_json(index).get("weight_map")
            if not isinstance(parts, dict) or not parts:
                raise CheckpointError(f"{index}: has no weight_map")
            return sorted({folder / Path(str(part)).name for part in parts.values()})
    advice = f"needs {' or '.join(_FILES)} beside config.json"
    for pattern, what in _OTHERS.items():
        for file in sorted(folder.rglob(pattern)):
            raise CheckpointError(
                f"{folder}: {file.relative_to(folder)} is {what}; import the checkpoint that it was"
                f" made from, which {advice}"
            )
    raise CheckpointError(f"{folder}: is no checkpoint; one {advice}")


def _open(path: Path) -> Weights:
    try:
        return Safetensors(path) if path.suffix == ".safetensors" else TorchFile(path)
    except (OSError, SafetensorError) as error:
        reason = f"cannot be read: {error}"
    except UnpicklingError:  # torch's words advise to run what the file holds
        reason = "is damaged, or holds more than weights, which is never read"
    except Exception as error:  # torch raises many kinds for a damaged file
        reason = f"cannot be read as weights: {str(error).splitlines()[0]:.200}"
    raise CheckpointError(f"{path}: {reason}; download it again") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON: {error}; download it again") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: is not a JSON object; download it again")
    return content
