"""A host in a thread of the test: the real engine at the other end of a real socket."""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import Setup, encode_message
from seqserve_server.engine.decoding.constraints import Detokenize
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.host import Host
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.runtime import Runtime

PATIENCE_S = 60.0
LIMITS = EngineLimits(workers=1, slots=4, max_queue=16, max_source_tokens_per_step=64)


class ThreadHost:
    """Stands in for an engine's process; the ``channel`` is the other end's socket."""

    engine: Engine
    """There once it is loaded."""

    def __init__(
        self, runtime: Any, limits: EngineLimits = LIMITS, detokenize: Detokenize = str
    ) -> None:
        """Begins at once, as a process does."""
        self._runtime = cast(Runtime, runtime)
        self._detokenize = detokenize
        self.channel, self._theirs = socket.socketpair()
        self._thread = threading.Thread(target=Host(self._theirs, self._load).run, daemon=True)
        self.channel.sendall(encode_message(Setup(Path(), Provider.CPU, 1, limits)))
        self._thread.start()

    def _load(self, setup: Setup, deliver: Deliver, observer: Observer) -> Engine:
        self.engine = Engine(self._runtime, setup.limits, deliver, observer, self._detokenize)
        return self.engine

    @property
    def pid(self) -> int:
        return os.getpid()

    def end(self) -> None:
        """Waits until it has ended, which the other end's closing makes it do."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it goes on after its socket was closed"

    def break_down(self) -> None:
        """Ends abruptly, as a killed process does."""
        with suppress(OSError):  # it has ended already
            self._theirs.shutdown(socket.SHUT_RDWR)
