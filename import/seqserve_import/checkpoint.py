"""Reads the folder of a checkpoint: settings at once, weights one at a time.

The weights lie in ``model.safetensors`` or ``pytorch_model.bin``, or in shards that a file
``….index.json`` lists.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor

from seqserve_import.files import CheckpointError, Weights, open_weights, read_object

T = TypeVar("T")

MAX_SIZE, MAX_WIDTH, MAX_LAYERS = 1 << 22, 1 << 14, 1 << 9
"""Maximum of width, layers and other sizes of a network: several times any model's."""
MAX_POSITIONS = 1 << 14
"""Maximum length of a table of positions."""

_FILES = ("model.safetensors", "pytorch_model.bin")
_OTHERS = {
    "*.onnx": "ONNX graphs, which hold weights without their names",
    "tf_model.h5": "weights of TensorFlow",
    "flax_model.msgpack": "weights of Flax",
    "*.gguf": "weights in GGUF",
}
_ROWS_COMPARED = 1 << 14
# Prefixes that torch.compile and the classes for several devices add to names of weights.
_WRAPPERS = re.compile(r"^(?:module\.)+|(?:(?<=^)|(?<=\.))_orig_mod\.")
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


class Settings:
    """The values of a JSON file; reading one checks its type and names it in errors."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        """Takes the values; one that is null counts as missing."""
        self.path = path
        self._values = {name: value for name, value in values.items() if value is not None}

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Reads a file."""
        return cls(path, read_object(path))

    def over(self, others: Settings) -> Settings:
        """Joins the values of both; its own go before the others."""
        return Settings(self.path, {**others._values, **self._values})

    def some(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the values of these names, unchanged; missing ones are left out."""
        return {name: self._values[name] for name in names if name in self._values}

    @property
    def names(self) -> set[str]:
        """The names of all values."""
        return set(self._values)

    def has(self, name: str) -> bool:
        """Returns whether there is a value."""
        return name in self._values

    def number(self, name: str, default: int | None = None) -> int:
        """Returns a whole number."""
        return self._value(name, int, default)

    def optional_number(self, name: str) -> int | None:
        """Returns a whole number, or None if it is missing."""
        return self.number(name) if self.has(name) else None

    def size(self, name: str, default: int | None = None, *, maximum: int = MAX_SIZE) -> int:
        """Returns a whole number from 0 to a maximum."""
        number = self.number(name, default)
        if not 0 <= number <= maximum:
            raise self.wrong(name, f"is not from 0 to {maximum:,}")
        return number

    def real(self, name: str, default: float | None = None) -> float:
        """Returns a number."""
        value = self._values.get(name)
        return float(value) if type(value) is int else self._value(name, float, default)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Returns true or false."""
        return self._value(name, bool, default)

    def text(self, name: str, default: str | None = None) -> str:
        """Returns a text."""
        return self._value(name, str, default)

    def texts(self, name: str) -> list[str]:
        """Returns a list of texts, empty if it is missing."""
        values = self._value(name, list, [])
        if not all(isinstance(text, str) for text in values):
            raise self.wrong(name, "is not a list of texts")
        return values

    def numbers(self, name: str) -> list[int]:
        """Returns a list of whole numbers, empty if it is missing; a single one makes a list."""
        value = self._values.get(name, [])
        values = value if isinstance(value, list) else [value]
        if not all(type(number) is int for number in values):
            raise self.wrong(name, "is not a list of whole numbers")
        return values

    def number_lists(self, name: str) -> list[list[int]]:
        """Returns a list of lists of whole numbers, empty if it is missing."""
        values = self._value(name, list, [])
        for numbers in values:
            if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
                raise self.wrong(name, "is not a list of lists of whole numbers")
        return values

    def numbers_by_name(self, name: str) -> dict[str, float]:
        """Returns numbers by names, empty if it is missing."""
        values = self._value(name, dict, {})
        if not all(type(number) in (int, float) for number in values.values()):
            raise self.wrong(name, "is not a mapping to numbers")
        return values

    def wrong(self, name: str, problem: str) -> CheckpointError:
        """Makes the error of a value."""
        value = self._values.get(name)
        shown = "" if value is None else f" (it is {_SHOWN.repr(value)})"
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
                f"{folder}: is not a folder; download a checkpoint first, such as with"
                " `hf download NAME --local-dir FOLDER`"
            )
        self.folder = folder
        weights = _weight_files(folder)
        self.config = Settings.read(folder / "config.json")
        path = folder / "generation_config.json"
        generation = Settings.read(path) if path.exists() else Settings(path, {})
        self.generation = generation.over(self.config)
        """Settings of generation: generation_config.json over config.json."""
        self.recommended = generation if path.exists() else self.config
        """How its makers decode. As in ``generate()``, one file alone counts."""
        self._places: dict[str, tuple[Weights, str]] = {}
        for file in weights:
            opened = open_weights(file)
            for name in opened.shapes:
                self._add(opened, name)

    def _add(self, file: Weights, name: str) -> None:
        """Notes where a weight lies, by its name in the network as it was before it was wrapped."""
        own = _WRAPPERS.sub("", name)
        if own in self._places:
            raise self.fault(f"the weight {own} is there twice, also as {name}")
        self._places[own] = file, name

    @property
    def layout(self) -> str:
        """The ``model_type`` of Hugging Face that names languages alike."""
        return self.config.text("model_type")

    @property
    def names(self) -> set[str]:
        """The names of all weights."""
        return set(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a weight."""
        file, stored = self._place(name)
        return file.shapes[stored]

    def tensor(self, name: str) -> Tensor:
        """Reads a weight as fp32.

        Raises:
            CheckpointError: No weight has this name, or it is not a floating-point number.
        """
        return self._floats(*self._place(name))

    def _floats(self, file: Weights, name: str) -> Tensor:
        tensor = file.tensor(name)
        if not tensor.is_floating_point():
            raise self.fault(
                f"{name} is of type {tensor.dtype}; use the checkpoint before its quantisation"
            )
        return tensor.float()

    def fault(self, problem: str) -> CheckpointError:
        """Makes the error of a fault in it."""
        return CheckpointError(f"{self.folder}: {problem}")

    def are_equal(self, name: str, other: str) -> bool:
        """Returns whether two weights hold the same numbers, reading some rows at a time."""
        shape = self.shape(name)
        if shape != self.shape(other):
            return False
        (first, first_name), (second, second_name) = self._place(name), self._place(other)
        for start in range(0, shape[0], _ROWS_COMPARED):
            end = start + _ROWS_COMPARED
            rows = first.rows(first_name, start, end), second.rows(second_name, start, end)
            if not torch.equal(*rows):
                return False
        return True

    def _place(self, name: str) -> tuple[Weights, str]:
        if name not in self._places:
            raise self.fault(f"the weight {name} is missing")
        return self._places[name]


def _weight_files(folder: Path) -> list[Path]:
    for name in _FILES:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            parts = read_object(index).get("weight_map")
            if not isinstance(parts, dict) or not parts:
                raise CheckpointError(f"{index}: has no weight_map")
            return sorted({folder / Path(str(part)).name for part in parts.values()})
    advice = f"needs {' or '.join(_FILES)} in the folder of config.json"
    _refuse_by_name(folder)
    for pattern, what in _OTHERS.items():
        for file in sorted(folder.rglob(pattern)):
            raise CheckpointError(
                f"{folder}: {file.relative_to(folder)} is {what}; import the checkpoint that it was"
                f" made from, which {advice}"
            )
    raise CheckpointError(f"{folder}: is not a checkpoint; one {advice}")


def _refuse_by_name(folder: Path) -> None:
    adapter = folder / "adapter_config.json"
    if adapter.exists():
        base = Settings.read(adapter).text("base_model_name_or_path", "its base model")
        raise CheckpointError(
            f"{folder}: is an adapter of PEFT to {base:.200}; import the folder of that model with"
            f" --adapter {folder}"
        )
    snapshots = sorted(path for path in folder.glob("snapshots/*") if path.is_dir())
    if snapshots:
        raise CheckpointError(
            f"{folder}: is a folder of the hub's cache; import the checkpoint in it,"
            f" {snapshots[-1]}"
        )
