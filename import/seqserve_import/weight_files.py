"""Reads files of weights, one weight at a time.

Each weight is a separate mapping into the file: reading it touches no other, and dropping it
gives its memory back, whatever else is still in use.
"""

from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode


class Weights(Protocol):
    """The weights of one file."""

    def names(self) -> list[str]:
        """Lists the weights."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a weight without reading it."""

    def tensor(self, name: str) -> Tensor:
        """Reads a weight as stored."""

    def rows(self, name: str, start: int, end: int) -> Tensor:
        """Reads some rows of a weight as stored."""
        return self.tensor(name)[start:end]


class Safetensors(Weights):
    """A safetensors file."""

    def __init__(self, path: Path) -> None:
        """Reads the names."""
        self._path = path
        self._names = list(self._opened().keys())

    def names(self) -> list[str]:
        """Lists the weights."""
        return self._names

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a weight without reading it."""
        return tuple(self._opened().get_slice(name).get_shape())

    def rows(self, name: str, start: int, end: int) -> Tensor:
        """Reads some rows of a weight as stored."""
        return self._opened().get_slice(name)[start:end]  # type: ignore[no-any-return]

    def tensor(self, name: str) -> Tensor:
        """Maps a weight as stored."""
        return self._opened().get_tensor(name)  # type: ignore[no-any-return]

    def _opened(self) -> Any:
        return safe_open(self._path, framework="pt")


class TorchFile(Weights):
    """A file of torch.save; only tensors are read, no other object is made.

    Source: "Serialization semantics" in the notes of torch, for the places of weights in a file.
    """

    def __init__(self, path: Path) -> None:
        """Reads the names, shapes and places; the format before torch 1.6 is read whole."""
        self._path = path
        try:
            torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # it cannot be mapped
            content = torch.load(path, map_location="cpu", weights_only=True)
        else:
            with FakeTensorMode():
                content = torch.load(path, map_location="cpu", weights_only=True)
        self._tensors: dict[str, Tensor] = {
            str(name): value for name, value in content.items() if isinstance(value, Tensor)
        }
        for name, tensor in self._tensors.items():
            # A shape may repeat its rows without end, which would be written out.
            if tensor.nbytes > tensor.untyped_storage().nbytes():
                raise ValueError(f"{name} is larger than its stored data")

    def names(self) -> list[str]:
        """Lists the weights."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a weight without reading it."""
        return tuple(self._tensors[name].shape)

    def tensor(self, name: str) -> Tensor:
        """Maps a weight as stored."""
        tensor = self._tensors[name]
        storage = tensor.untyped_storage()
        start = getattr(storage, "_checkpoint_offset", None)
        if start is None:
            return tensor
        end = start + storage.nbytes()
        mapped = torch.UntypedStorage.from_file(str(self._path), shared=False, nbytes=end)
        # Slices are storages too, which torch does not tell.
        part: Any = mapped[start:end]
        place = tensor.storage_offset(), tensor.size(), tensor.stride()
        return torch.empty(0, dtype=tensor.dtype).set_(part, *place)
