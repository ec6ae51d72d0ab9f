"""Reads ``model.bin`` of CTranslate2: variables, and aliases of those that are tied.

A file begins with its version, the name of its specification, and the revision of that. Each
variable follows as its name, its shape, its type, the length of its data, and the data; then come
pairs of names for one variable. Numbers are little-endian, names end in a zero.

Source: ``ModelSpec._serialize`` in CTranslate2's ``specs/model_spec.py``.
"""

import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqserve_import.files import AGAIN, CheckpointError, Weights, check_regular

FILE = "model.bin"
SPECIFICATION = "TransformerSpec"
_VERSIONS = range(4, 7)
_TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "<u2")
_BFLOAT16 = "<u2"
_INTEGERS = ("i1", "<i2")
_SCALE = "weight_scale"
_OLD_INT16_SCALE = 1000.0
"""Scale of old files, which lack a scale for each variable."""
_MAX_RANK, _SMALLEST_VARIABLE, _SMALLEST_ALIAS = 4, 9, 4

_FUSED = re.compile(r"(.*/(self_attention|attention)/linear_([012]))/(weight|bias)")
_PARTS = {
    ("self_attention", "0"): ("query", "key", "value"),
    ("attention", "1"): ("key", "value"),
}
"""Projections that share one variable, by their attention and their number."""


class _Array(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    begin: int
    """Its first byte in the file."""

    def rows(self, start: int, end: int) -> "_Array":
        row_bytes = np.dtype(self.dtype).itemsize * prod(self.shape[1:])
        return self._replace(
            shape=(end - start, *self.shape[1:]), begin=self.begin + start * row_bytes
        )


class ModelBin(Weights):
    """The weights of a file, as floats also if it has eight or sixteen bits.

    Fused projections are read apart: ``self_attention/linear_0[query]/weight``.
    """

    def __init__(self, path: Path) -> None:
        """Maps the file and reads all but the data."""
        check_regular(path)
        self._path = path
        try:
            with path.open("rb") as file:
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            arrays = self._read()
        except (OSError, struct.error, ValueError, UnicodeDecodeError) as error:
            reason = "is cut off" if isinstance(error, struct.error) else f"is damaged: {error}"
            raise CheckpointError(f"{path}: {reason}; {AGAIN}") from None
        self.attributes: Mapping[str, float] = {
            name: self._numbers(array).item()
            for name, array in arrays.items()
            if not array.shape and not name.endswith(_SCALE)
        }
        """The variables that are a single number, such as ``encoder/num_heads``."""
        for name, value in self.attributes.items():
            if not isfinite(value):
                raise CheckpointError(f"{path}: {name} is {value}; {AGAIN}")
        self._scales = {
            name.removesuffix("_scale"): array
            for name, array in arrays.items()
            if name.endswith(_SCALE)
        }
        weights = {
            name: array
            for name, array in arrays.items()
            if array.shape and not name.endswith(_SCALE)
        }
        self._arrays: dict[str, _Array] = {}
        for name, array in weights.items():
            self._check_scale(name, array)
            self._arrays |= self._parts(name, array)
        self.shapes = {name: array.shape for name, array in self._arrays.items()}

    def rows(self, name: str, start: int, end: int) -> Tensor:
        """Reads some rows of a weight, ``[end - start, ..]``."""
        array, scale = self._arrays[name], self._scales.get(name)
        end = min(end, array.shape[0])
        if scale is not None and scale.shape:
            scale = scale.rows(start, end)
        return torch.from_numpy(self._dequantized(array.rows(start, end), scale))

    def tensor(self, name: str) -> Tensor:
        """Reads a weight as fp32."""
        return torch.from_numpy(self._dequantized(self._arrays[name], self._scales.get(name)))

    def _read(self) -> dict[str, _Array]:
        reader = _Reader(self._content)
        version = reader.number("I")
        if version not in _VERSIONS:
            raise ValueError(f"its version is {version}; 4 to 6 can be read")
        specification, revision = reader.text(), reader.number("I")
        if specification != SPECIFICATION:
            raise CheckpointError(
                f"{self._path}: holds {specification:.80}; of CTranslate2 only encoder-decoder"
                f" models ({SPECIFICATION}) can be imported"
            )
        if revision > 7:
            raise ValueError(f"its revision is {revision}; at most 7 can be read")
        arrays: dict[str, _Array] = {}
        for _ in range(reader.count(_SMALLEST_VARIABLE)):
            name = reader.text()
            array = reader.array(name)
            if name in arrays:
                raise ValueError(f"{name:.200} is there twice")
            arrays[name] = array
        for _ in range(reader.count(_SMALLEST_ALIAS)):
            alias, name = reader.text(), reader.text()
            if alias in arrays or name not in arrays:
                raise ValueError(f"{alias:.200} cannot be an alias of {name:.200}")
            arrays[alias] = arrays[name]
            if f"{name}_scale" in arrays:
                arrays[f"{alias}_scale"] = arrays[f"{name}_scale"]
        return arrays

    def _parts(self, name: str, array: _Array) -> dict[str, _Array]:
        """Divides a fused weight, and its scales, into single projections."""
        found = _FUSED.fullmatch(name)
        labels = _PARTS.get((found[2], found[3])) if found else None
        if found is None or labels is None:
            return {name: array}
        size = array.shape[0] // len(labels)
        if size * len(labels) != array.shape[0]:
            raise CheckpointError(
                f"{self._path}: {name} has {array.shape[0]} rows, which"
                f" {' and '.join(labels)} cannot share; several queries with one key are not"
                " supported"
            )
        scale, parts = self._scales.pop(name, None), {}
        for at, label in enumerate(labels):
            part = f"{found[1]}[{label}]/{found[4]}"
            parts[part] = array.rows(at * size, (at + 1) * size)
            if scale is not None:
                rows = scale.rows(at * size, (at + 1) * size) if scale.shape else scale
                self._scales[part] = rows
        return parts

    def _check_scale(self, name: str, array: _Array) -> None:
        scale = self._scales.get(name)
        if array.dtype == "i1" and scale is None:
            raise CheckpointError(f"{self._path}: {name}_scale is missing; {AGAIN}")
        if array.dtype == "<i4":
            raise CheckpointError(
                f"{self._path}: {name} has 32-bit integers, as AWQ packs weights; convert the"
                " checkpoint that it was made from, or import that"
            )
        if scale is not None and (
            scale.shape not in ((), array.shape[:1]) or scale.dtype in _INTEGERS
        ):
            raise CheckpointError(
                f"{self._path}: {name}_scale has the shape {list(scale.shape)}; the weight has"
                f" {list(array.shape)}"
            )

    def _numbers(self, array: _Array) -> Any:
        count = prod(array.shape)
        return np.frombuffer(self._content, array.dtype, count, array.begin).reshape(array.shape)

    def _dequantized(self, array: _Array, scale: _Array | None) -> Any:
        numbers = self._numbers(array)
        if array.dtype == _BFLOAT16:
            return (numbers.astype(np.uint32) << 16).view(np.float32)
        values = numbers.astype(np.float32)
        if array.dtype in _INTEGERS:
            factors: Any = _OLD_INT16_SCALE if scale is None else self._dequantized(scale, None)
            if not np.all(factors > 0):
                raise CheckpointError(f"{self._path}: has a scale that is not above zero; {AGAIN}")
            # Weights that are not finite are refused by name.
            with np.errstate(over="ignore"):
                values /= np.reshape(factors, (-1, *[1] * (len(array.shape) - 1)))
        return values


class _Reader:
    """Reads a file from its begin to its end, and not beyond."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content, self._at = content, 0

    def number(self, kind: str) -> int:
        [number] = struct.unpack_from(f"<{kind}", self._content, self._at)
        self._at += struct.calcsize(f"<{kind}")
        return int(number)

    def count(self, smallest: int) -> int:
        """Reads how many parts follow, each of which takes some bytes at least."""
        count, left = self.number("I"), len(self._content) - self._at
        if count * smallest > left:
            raise ValueError(f"{count:,} parts cannot follow in {left:,} bytes")
        return count

    def text(self) -> str:
        length = self.number("H")
        self._skip(length, "a name")
        return self._content[self._at - length : self._at].rstrip(b"\0").decode()

    def array(self, name: str) -> _Array:
        rank = self.number("B")
        if rank > _MAX_RANK:
            raise ValueError(f"{name:.200} has {rank} dimensions")
        shape = tuple(self._dimensions(rank))
        kind, length = self.number("B"), self.number("I")
        if kind >= len(_TYPES):
            raise ValueError(f"{name:.200} is of the unknown type {kind}")
        array = _Array(_TYPES[kind], shape, self._at)
        if prod(shape) * np.dtype(array.dtype).itemsize != length or 0 in shape:
            raise ValueError(f"{name:.200} has {length:,} bytes and the shape {list(shape)}")
        self._skip(length, f"{name:.200}")
        return array

    def _dimensions(self, rank: int) -> Iterator[int]:
        for _ in range(rank):
            yield self.number("I")

    def _skip(self, length: int, what: str) -> None:
        if length > len(self._content) - self._at:
            raise ValueError(f"{what} is cut off")
        self._at += length
