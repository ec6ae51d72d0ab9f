"""The settings of a gRPC connection, its methods, and whether this process may use gRPC.

A process that was forked while gRPC ran in its parent has the memory of gRPC but not its threads. A
call would hang for ever, past its deadline, or end the process. With GRPC_ENABLE_FORK_SUPPORT=1
gRPC prepares for a fork, but not its asyncio side. Where the last channel was closed just before,
the fork waits until gRPC's threads have ended, which takes them some milliseconds.
Source: https://github.com/grpc/grpc/blob/master/doc/fork_support.md
"""

import os
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Any
from weakref import WeakSet

import grpc
import grpc.aio

from seqserve.address import channel_options, check_name, grpc_target, is_local, servers_of
from seqserve.arguments import MOST_CONNECTIONS
from seqserve.auth import metadata_of
from seqserve.errors import MisplacedClient, OptionError
from seqserve.metadata import Metadata, MetadataSource, checked_metadata
from seqserve.tls import TLS
from seqserve.v1 import generation_pb2_grpc, model_pb2_grpc


class Method(Enum):
    """A method of GenerationService or ModelService, by its name."""

    GENERATE = "Generate"
    GENERATE_STREAM = "GenerateStream"
    GENERATE_BATCH = "GenerateBatch"
    GENERATE_BULK = "GenerateBulk"
    SCORE = "Score"
    ATTENTION = "Attention"
    TOKENIZE = "Tokenize"
    DETOKENIZE = "Detokenize"
    DETECT_LANGUAGE = "DetectLanguage"
    LIST_MODELS = "ListModels"
    GET_MODEL = "GetModel"
    LOAD_MODEL = "LoadModel"
    UNLOAD_MODEL = "UnloadModel"
    SET_TRAFFIC = "SetTraffic"
    LIST_GLOSSARIES = "ListGlossaries"
    GET_GLOSSARY = "GetGlossary"
    GET_USAGE = "GetUsage"


# Channels with equal options share their connections otherwise.
# Source: gRPC core, include/grpc/impl/channel_arg_names.h.
_UNSHARED = ("grpc.use_local_subchannel_pool", 1)


class Connection:
    """Makes channels to one target; itself it opens none."""

    def __init__(
        self,
        target: str,
        max_message_bytes: int,
        tls: TLS | None = None,
        token: str | None = None,
        metadata: MetadataSource | None = None,
        connections: int | None = None,
    ) -> None:
        self._address = grpc_target(target)
        self.servers = len(servers_of(target))
        """Number of servers that the target lists; a name may mean several."""
        self.connections = MOST_CONNECTIONS if connections is None else connections
        """Maximum number of channels at a time."""
        if not (isinstance(self.connections, int) and self.connections >= 1):
            raise OptionError(f"connections: {connections!r} is not a whole number from 1 on")
        if not (tls is None or isinstance(tls, TLS)):
            raise OptionError(f"tls: {tls!r:.80} is not TLS(...), which names its files")
        self._token = metadata_of(token, is_private=tls is not None or is_local(target))
        if metadata is not None and not callable(metadata):
            raise OptionError(f"metadata: {metadata!r:.80} is not a function that returns pairs")
        self._source = metadata
        if tls is not None:
            check_name(target, tls.server_name)
        server_name = tls.server_name if tls else None
        self._options = channel_options(target, max_message_bytes, server_name)
        self._credentials = tls.credentials() if tls else None

    def channel(self, *, is_first: bool = True) -> grpc.Channel:
        """Makes a channel for threads; a further one makes connections that it shares with none."""
        return self._made_by(grpc, is_first)  # type: ignore[no-any-return]

    def aio_channel(self, *, is_first: bool = True) -> grpc.aio.Channel:
        """Makes a channel for the running event loop."""
        return self._made_by(grpc.aio, is_first)  # type: ignore[no-any-return]

    def _made_by(self, module: Any, is_first: bool) -> Any:
        options = self._options if is_first else [*self._options, _UNSHARED]
        if self._credentials is None:
            return module.insecure_channel(self._address, options)
        return module.secure_channel(self._address, self._credentials, options)

    def metadata(self) -> Metadata:
        """Returns the metadata of the next call; what the caller adds is checked."""
        added = checked_metadata(self._source()) if self._source else ()
        return (*added, *self._token)


def callables(channel: Any) -> dict[Method, Any]:
    """Returns the stub of every method."""
    stubs = (
        generation_pb2_grpc.GenerationServiceStub(channel),
        model_pb2_grpc.ModelServiceStub(channel),
    )
    methods = {name: stub for each in stubs for name, stub in vars(each).items()}
    return {method: methods[method.value] for method in Method}


def health_check(channel: Any) -> Any:
    """Returns what makes health checks; its messages are bytes.

    Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md
    """
    return channel.unary_unary("/grpc.health.v1.Health/Check")


_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
_TRUE = {"1", "true", "yes", "y", "t"}

_THREADS = "/proc/self/task"
_PATIENCE_S = 1.0
"""Limit on waiting for threads to end: those that are not gRPC's may stay for ever."""


class ForkGuard:
    """Knows what gRPC does in this process, and whether it did so when the process was forked."""

    def __init__(self) -> None:
        self._channels: WeakSet[grpc.Channel] = WeakSet()
        self._has_asyncio = False
        self._threads_before: set[int] = set()
        self._is_ending = False
        self._is_broken = False

    def check(self) -> None:
        """Raises :class:`MisplacedClient` if gRPC ran in the parent at the fork."""
        if self._is_broken:
            raise MisplacedClient(
                "this process was forked while a client of its parent was open, so gRPC would hang"
                " in it; close clients before a fork and make new ones after it, or start processes"
                f" by 'spawn', or, without AsyncClient, set {_SUPPORT}=1"
            )

    def open(self, make: Callable[[], grpc.Channel]) -> grpc.Channel:
        """Makes a channel of threads."""
        self._threads_before = self._threads_before or _threads()
        channel = make()
        self._channels.add(channel)
        return channel

    def closed(self, channel: grpc.Channel) -> None:
        """Notes that a channel is closed."""
        self._channels.discard(channel)
        self._is_ending = True

    def opened_asyncio(self) -> None:
        """Notes a channel of asyncio; gRPC's thread for them outlives them."""
        self._has_asyncio = True

    def forking(self) -> None:
        """Waits until gRPC has ended after the last channel, where the system lists threads."""
        if not self._is_ending or self._channels or self._has_asyncio:
            return
        until_s = time.monotonic() + _PATIENCE_S
        while self._has_new_threads() and time.monotonic() < until_s:
            time.sleep(0.001)
        self._is_ending = False

    def _has_new_threads(self) -> bool:
        python_threads = {thread.native_id for thread in threading.enumerate()}
        return bool(_threads() - self._threads_before - python_threads)

    def forked(self) -> None:
        """Notes that this process has been forked."""
        self._threads_before = set()
        has_support = os.environ.get(_SUPPORT, "").lower() in _TRUE
        if self._has_asyncio or (self._channels and not has_support):
            self._is_broken = True


def _threads() -> set[int]:
    return set(map(int, os.listdir(_THREADS))) if os.path.isdir(_THREADS) else set()


FORK_GUARD = ForkGuard()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=FORK_GUARD.forking, after_in_child=FORK_GUARD.forked)
