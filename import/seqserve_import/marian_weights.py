"""Reads the weights of Marian: ``.npz``, and ``.bin`` as Bergamot and Firefox have it.

A ``.bin`` begins with its version and the number of its arrays. The headers of all arrays follow,
then their names, their shapes, and their data, aligned by a gap of a length that is stored too.
Numbers are little-endian.
"""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqserve_import.files import MAX_BYTES, CheckpointError, Weights, check_regular, read_bytes

SETTINGS = "special:model.yml"
"""The array whose bytes are the settings of the network, in YAML."""

_VERSION = 1
_BYTES, _FLOAT32 = 0x101, 0x404
_INTGEMM8 = (0x4101, 0x10001)
"""Eight bits for any CPU, as Bergamot and as Marian number it."""
_FLOATS: dict[int, np.dtype[Any]] = {_FLOAT32: np.dtype("<f4"), 0x402: np.dtype("<f2")}
_INPUT_SCALE = "_QuantMultA"
_OUTPUT_INPUT_SCALE = "none" + _INPUT_SCALE
"""Bergamot's name of the scale of the last projection, whose weight is the table of tokens."""
_MAX_INT8 = 127


class Npz(Weights):
    """An ``.npz`` file; it is open only while an array is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        check_regular(path)
        shapes = self._checked_shapes()
        if SETTINGS not in shapes:
            raise CheckpointError(f"{path}: has no {SETTINGS}; it is not a model of Marian")
        self.settings = bytes(self.tensor(SETTINGS).numpy()).rstrip(b"\0")
        self.shapes = {name: shape for name, shape in shapes.items() if name[:8] != "special:"}
        self.input_limits: dict[str, float] = {}

    def tensor(self, name: str) -> Tensor:
        """Reads a weight."""
        # Numpy would leave a damaged file open.
        with self._damage_named(), self._path.open("rb") as file, np.load(file) as arrays:
            return torch.from_numpy(arrays[name])

    def _checked_shapes(self) -> dict[str, tuple[int, ...]]:
        """Refuses arrays that are more than the file holds, before memory is taken for them."""
        shapes = {}
        with self._damage_named(), zipfile.ZipFile(self._path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_BYTES:
                raise ValueError(f"holds more than {MAX_BYTES:,} bytes, the largest allowed")
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                with archive.open(entry) as member:
                    is_first = np.lib.format.read_magic(member) == (1, 0)
                    version = "1_0" if is_first else "2_0"
                    read = getattr(np.lib.format, f"read_array_header_{version}")
                    shape, _, dtype = read(member)
                if prod(shape) * dtype.itemsize > entry.file_size:
                    reason = f"has the shape {list(shape)}, which it is too short for"
                    raise ValueError(f"{name} {reason}")
                shapes[name] = shape
        return shapes

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise CheckpointError(f"{self._path}: cannot be read: {error}; copy it again") from None


@dataclass(frozen=True, slots=True)
class _Array:
    kind: int
    shape: tuple[int, ...]
    data: memoryview


class Bin(Weights):
    """A ``.bin`` file; weights of eight bits are read as floats."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            arrays = _arrays(memoryview(read_bytes(path, MAX_BYTES)))
        except (struct.error, ValueError, UnicodeDecodeError) as error:
            raise CheckpointError(
                f"{path}: is not a model of Marian, or damaged ({error}); copy it again"
            ) from None
        if SETTINGS not in arrays:
            raise CheckpointError(f"{path}: has no {SETTINGS}; it is not a model of Marian")
        self.settings = bytes(arrays[SETTINGS].data).rstrip(b"\0")
        self.input_limits = _input_limits(arrays)
        self._arrays = {
            name: array
            for name, array in arrays.items()
            if not (name.startswith("special:") or name.endswith(_INPUT_SCALE))
        }
        for name, array in self._arrays.items():
            self._check(name, array)
        self.shapes = {name: array.shape for name, array in self._arrays.items()}

    def _check(self, name: str, array: _Array) -> None:
        if array.kind not in (*_FLOATS, *_INTGEMM8):
            raise CheckpointError(
                f"{self._path}: {name} is of type {array.kind:#x}, packed for one kind of CPU;"
                " import the .npz that it was converted from, or convert that with --gemm-type"
                " intgemm8"
            )
        size, extra = (1, 4) if array.kind in _INTGEMM8 else (_FLOATS[array.kind].itemsize, 0)
        if len(array.data) < prod(array.shape) * size + extra:
            raise CheckpointError(f"{self._path}: {name} is cut off; copy it again")

    def tensor(self, name: str) -> Tensor:
        """Reads a weight, as fp32 if it was stored in eight bits."""
        array = self._arrays[name]
        if array.kind in _INTGEMM8:
            return torch.from_numpy(_dequantized(name, array))
        numbers = np.frombuffer(array.data, _FLOATS[array.kind], prod(array.shape))
        return torch.from_numpy(numbers.reshape(array.shape).copy())


def _arrays(content: memoryview) -> dict[str, _Array]:
    version, count = struct.unpack_from("<QQ", content)
    if version != _VERSION:
        raise ValueError(f"version {version} is not known")
    at = 16
    headers = []  # lengths of the name, kind, lengths of the shape and of the data
    for _ in range(count):
        headers.append(struct.unpack_from("<QQQQ", content, at))
        at += 32
    names = []
    for length, *_ in headers:
        names.append(bytes(content[at : at + length]).rstrip(b"\0").decode())
        at += length
    shapes = []
    for _, _, length, _ in headers:
        shapes.append(struct.unpack_from(f"<{length}I", content, at))
        at += 4 * length
    (gap,) = struct.unpack_from("<Q", content, at)
    at += 8 + gap
    arrays = {}
    for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True):
        if at + length > len(content):
            raise ValueError(f"{name} is cut off")
        arrays[name] = _Array(kind, shape, content[at : at + length])
        at += length
    return arrays


def _dequantized(name: str, array: _Array) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Turns integers and their scale, which follows them, into floats.

    All but tables of tokens are stored as their transpose.
    """
    count = prod(array.shape)
    (scale,) = struct.unpack_from("<f", array.data, count)
    integers = np.frombuffer(array.data, np.int8, count)
    values = integers.astype(np.float32) / np.float32(scale)
    if name.endswith("Wemb"):
        return values.reshape(array.shape)
    return values.reshape(array.shape[::-1]).T


def _input_limits(arrays: dict[str, _Array]) -> dict[str, float]:
    limits = {}
    for name, array in arrays.items():
        if name.endswith(_INPUT_SCALE) and array.kind == _FLOAT32 and prod(array.shape) == 1:
            (scale,) = struct.unpack_from("<f", array.data)
            weight = "Wemb" if name == _OUTPUT_INPUT_SCALE else name.removesuffix(_INPUT_SCALE)
            if scale > 0:
                limits[weight] = _MAX_INT8 / scale
    return limits
