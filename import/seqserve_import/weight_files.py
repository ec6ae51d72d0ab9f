"""Reads files of weights, one weight at a time.

Each weight is a separate mapping into the file: reading it touches no other, and dropping it
gives its memory back, whatever else is still in use.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode


class Weights(ABC):
    """The weights of one file."""

    shapes: Mapping[str, tuple[int, ...]]
    """By the names of the weights, which are not read for it."""

    @abstractmethod
    def tensor(self, name: str) -> Tensor:
        """Reads or maps a weight as stored; as fp32 if it has eight bits."""

    def rows(self, name: str, start: int, end: int) -> Tensor:
        """Reads some rows of a weight, ``[end - start, ..]``."""
        return self.tensor(name)[start:end]


class Safetensors(Weights):
    """A safetensors file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        opened = self._opened()
        names = opened.keys()
        self.shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in names}

    def rows(self, name: str, start: int, end: int) -> Tensor:
        """Reads some rows of a weight alone."""
        return self._opened().get_slice(name)[start:end]  # type: ignore[no-any-return]

    def tensor(self, name: str) -> Tensor:
        """Maps a weight."""
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
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def tensor(self, name: str) -> Tensor:
        """Maps a weight."""
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
