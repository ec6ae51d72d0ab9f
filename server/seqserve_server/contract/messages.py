"""What an engine's process and the server's write to each other, and how it goes over a socket.

Each message is a pickle behind its length. Both ends are ours and the socket has no name, so that
nobody else can write to it.
"""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from seqserve.errors import SeqserveError
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.provider import Provider
from seqserve_server.contract.request import Priority
from seqserve_server.contract.stats import EngineStats

_LENGTH = struct.Struct("!I")


class Setup(NamedTuple):
    """The first message to an engine's process: what it serves."""

    folder: Path
    provider: Provider
    threads: int
    limits: EngineLimits


class Ready(NamedTuple):
    """The engine waits for requests."""

    slots: int
    max_rows: int
    """Slots that one request can have."""
    cache_bytes: int


class LoadFailed(NamedTuple):
    """The model could not be loaded; the process ends."""

    error: SeqserveError


class Submit(NamedTuple):
    """A request; its number stands for it from here on."""

    number: int
    source: list[int]
    options: DecodingOptions
    deadline_s: float | None
    streamed: bool
    arrived_s: float
    target: list[int] | None = None
    wants_attention: bool = False
    call_id: str = ""
    caller: str = ""
    priority: Priority = Priority.NORMAL


class Cancel(NamedTuple):
    """Nobody waits for a request any more."""

    number: int
    deadline_s: float | None
    """As it is now: a call that ended at its deadline is told as late."""


class StepEvents(NamedTuple):
    """All events of one step."""

    events: list[tuple[int, Event, Timeline | None]]
    """By number; with the last event of a request comes its timeline."""


class GetStats(NamedTuple):
    """A wish for a report."""


class StatsReply(NamedTuple):
    """How an engine is doing."""

    queue_depth: int
    """Requests that wait, for a slot or for the scorer."""
    slots_in_use: int
    """Rows that run."""
    figures: EngineStats
    """Of all that happened since the engine began."""
    low_queue_depth: int = 0
    """Requests of low priority among those that wait."""
    heartbeats: tuple[int, ...] = ()
    """How often each of its threads has come round."""


Message: TypeAlias = (
    Setup | Ready | LoadFailed | Submit | Cancel | StepEvents | GetStats | StatsReply
)


def encode_message(message: Message) -> bytes:
    """Gives the bytes of a message."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def read_message(stream: BinaryIO) -> Message | None:
    """Waits for the next message; None where the other end is gone."""
    try:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        [size] = _LENGTH.unpack(head)
        body = stream.read(size)
    except ConnectionResetError:
        # The other end closed before it had read all of ours: that is reported as a reset.
        return None
    return _message(body) if len(body) == size else None


class MessageDecoder:
    """Finds the messages in bytes that come in pieces of any size."""

    def __init__(self) -> None:
        """Begins with nothing."""
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Takes a piece and gives the messages that it completes."""
        self._bytes += data
        messages, place = [], 0
        while len(self._bytes) >= place + _LENGTH.size:
            [size] = _LENGTH.unpack_from(self._bytes, place)
            end = place + _LENGTH.size + size
            if len(self._bytes) < end:
                break
            messages.append(_message(self._bytes[place + _LENGTH.size : end]))
            place = end
        del self._bytes[:place]
        return messages


def _message(body: bytes | bytearray) -> Message:
    message: Message = pickle.loads(body)
    return message
