"""The messages between the front and an engine's process, and their encoding on a socket.

Each message is a pickle after its length: the number of its kind and its fields, which take a
fraction of the time of the object. Both ends are ours, and no other process can reach the socket,
because it has no name.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, get_args

from seqserve.errors import SeqserveError
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.request import Spec
from seqserve_server.contract.stats import Ready, StatsReply

_LENGTH = struct.Struct("!I")


class Setup(NamedTuple):
    """The first message to an engine's process: the model and its limits."""

    folder: Path
    provider: Provider
    threads: int
    limits: EngineLimits
    gpu: int = 0
    """Index of its GPU among those that the server can see, if its provider needs one."""
    packs: bool = True
    """Whether to run on packed copies of the weights: faster, and twice the memory."""


class LoadFailed(NamedTuple):
    """The model could not be loaded; the process ends."""

    error: SeqserveError


class Submit(NamedTuple):
    """A new request."""

    request_id: int
    spec: Spec


class Cancel(NamedTuple):
    """Cancels a request."""

    request_id: int
    is_late: bool
    """Whether the call ended at its deadline; such a request counts as late."""


class Together(NamedTuple):
    """Messages that go together; what several of them have, such as options, goes once."""

    messages: Sequence[Message]


class StepEvents(NamedTuple):
    """All events of one step."""

    events: list[tuple[int, Event, Timeline | None]]
    """The last event of a request brings its timeline."""
    others: int = 0
    """Requests of other fronts that the engine has."""


class GetStats(NamedTuple):
    """Asks for a :class:`StatsReply`."""


Message: TypeAlias = (
    Setup | Ready | LoadFailed | Submit | Cancel | StepEvents | GetStats | StatsReply | Together
)
_KINDS: tuple[Callable[..., Message], ...] = get_args(Message)
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}


def encode_message(message: Message) -> bytes:
    """Encodes a message."""
    return frame(pickle.dumps(_packed(message), pickle.HIGHEST_PROTOCOL))


def frame(body: bytes) -> bytes:
    """Puts the length before a body."""
    return _LENGTH.pack(len(body)) + body


def read_message(stream: BinaryIO) -> Message | None:
    """Waits for the next message; None if the other end is gone."""
    try:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        [size] = _LENGTH.unpack(head)
        body = stream.read(size)
    except ConnectionResetError:
        # The other end closed before it had read all of ours: that is reported as a reset.
        return None
    return decoded(body) if len(body) == size else None


class Frames:
    """Divides bytes that arrive in pieces of any size into the bodies of :func:`frame`."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytearray]:
        """Adds a piece and returns the bodies that it completes."""
        self._bytes += data
        bodies, start = [], 0
        while len(self._bytes) >= start + _LENGTH.size:
            [size] = _LENGTH.unpack_from(self._bytes, start)
            end = start + _LENGTH.size + size
            if len(self._bytes) < end:
                break
            bodies.append(self._bytes[start + _LENGTH.size : end])
            start = end
        del self._bytes[:start]
        return bodies


def decoded(body: bytes | bytearray) -> Message:
    """Decodes the body of a message."""
    return _unpacked(pickle.loads(body))


def _packed(message: Message) -> tuple[Any, ...]:
    if isinstance(message, Together):
        return _NUMBERS[Together], [_packed(each) for each in message.messages]
    return _NUMBERS[type(message)], *message


def _unpacked(packed: tuple[Any, ...]) -> Message:
    kind, fields = _KINDS[packed[0]], packed[1:]
    if kind is Together:
        return Together([_unpacked(each) for each in fields[0]])
    message: Message = kind(*fields)
    return message
