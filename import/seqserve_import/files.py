"""Reads the files of a checkpoint, which may be damaged or hostile.

Only regular files are opened, and no more is read, or expanded, than a checkpoint has. Each weight
is a separate mapping into its file: reading it touches no other, and dropping it gives its memory
back, whatever else is still in use.
"""

import gzip
import json
import re
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import yaml
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from seqserve.errors import SeqserveError

AGAIN = "copy it again from where the checkpoint is from"
MAX_BYTES = 1 << 32
"""Maximum expanded size of a file that is read at once, such as Marian's weights."""
MAX_TEXT_BYTES = 1 << 28
"""Maximum of settings and vocabularies; the largest tokenizers take a tenth."""

_LFS = b"version https://git-lfs.github.com/spec/"
# An alias is an asterisk before a name; in most vocabularies asterisks occur only within quotes.
_MAYBE_ALIAS = re.compile(rb"(?:^|[\s,:\[{-])\*[^\s\"']", re.MULTILINE)
# Those in C are ten times as fast; some builds of the library lack them.
_TYPED = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class CheckpointError(SeqserveError):
    """A part of a checkpoint is missing, damaged, or of a kind that cannot be imported.

    All that reads a part raises it; the message names the file.
    """


def check_regular(path: Path) -> None:
    """Raises an error unless a path is a regular file, before it is opened."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path}: is not a regular file; {AGAIN}")
        with path.open("rb") as file:
            begin = file.read(len(_LFS))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: is missing; {AGAIN}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if begin == _LFS:
        raise CheckpointError(
            f"{path}: is a pointer of Git LFS, not the file itself; run `git lfs pull` in its"
            " folder, or download the checkpoint with `hf download NAME --local-dir FOLDER`"
        )


def read_bytes(path: Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Returns the content of a file, at most ``limit`` bytes; a compressed ``….gz`` is expanded."""
    check_regular(path)
    try:
        with path.open("rb") as raw:
            if path.suffix != ".gz":
                content = raw.read(limit + 1)
            else:
                with gzip.open(raw) as expanded:
                    content = expanded.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CheckpointError(f"{path}: cannot be expanded: {error}; {AGAIN}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > limit:
        raise CheckpointError(f"{path}: holds more than {limit:,} bytes, the largest allowed")
    return content


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file."""
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON ({error}); {AGAIN}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: is not a JSON object; {AGAIN}")
    return content


def read_optional_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, or an empty one if there is no file."""
    return read_object(path) if path.exists() else {}


def read_mapping(path: Path, content: bytes, *, is_typed: bool = True) -> dict[Any, Any]:
    """Returns the mapping in a text of YAML, in which Marian keeps settings and vocabularies.

    Args:
        path: The file, for messages. content: Its content. is_typed: Whether ``no`` is false and
        ``1`` a number; otherwise all keys and values are texts.

    Raises:
        CheckpointError: It is not YAML, not a mapping, or refers to parts of itself, which may make
            gigabytes of a few lines.
    """
    loader = _TYPED if is_typed else _TEXTS
    try:
        if _MAYBE_ALIAS.search(content) and any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, loader)
        ):
            raise CheckpointError(f"{path}: has an alias of YAML (*), which is not read")
        values = yaml.load(content, loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: is not YAML ({reason:.200}); {AGAIN}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: is not a mapping; {AGAIN}")
    return values


def in_order_of_ids(path: Path, ids: Mapping[str, Any]) -> list[str]:
    """Returns tokens in the order of their ids.

    Raises:
        CheckpointError: The ids are not 0, 1, 2 and so on, each for one token.
    """
    if not ids or sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        raise CheckpointError(f"{path}: its ids are not 0 to {len(ids) - 1}, once each; {AGAIN}")
    return sorted(ids, key=ids.__getitem__)


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


def open_weights(path: Path) -> Weights:
    """Opens a file of weights."""
    check_regular(path)
    try:
        return Safetensors(path) if path.suffix == ".safetensors" else TorchFile(path)
    except (OSError, SafetensorError) as error:
        reason = f"cannot be read: {error}"
    except UnpicklingError:  # torch's words advise to run what the file holds
        reason = "is damaged, or holds more than weights, which is never read"
    except Exception as error:  # torch raises many kinds for a damaged file
        reason = f"cannot be read as weights: {str(error).splitlines()[0]:.200}"
    raise CheckpointError(f"{path}: {reason}; download it again") from None
