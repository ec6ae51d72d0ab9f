"""`seqserve serve`, whose engines are stopped or killed before they have loaded their model.

Whoever watches from outside may come too late. The first argument is a folder: while it has a file
named by a version, the engines of that version are killed if it says so, and else stopped.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from seqserve.__main__ import run
from seqserve_server.front.engine_client.client import EngineProcess
from seqserve_server.process import processes


@contextmanager
def engines_stopped() -> Iterator[None]:
    """Stops each engine that is started meanwhile, before it is told its model."""
    start_connected = processes.start_connected

    def start(*given: Any, **named: Any) -> Any:
        process, sockets = start_connected(*given, **named)
        os.kill(process.pid, signal.SIGSTOP)
        return process, sockets

    with mock.patch.object(processes, "start_connected", start):
        yield


def lose(folder: Path) -> None:
    started = EngineProcess.__init__

    def start(self: EngineProcess, setup: Any, *rest: Any, **more: Any) -> None:
        order = folder / setup.folder.name
        if not order.exists():
            started(self, setup, *rest, **more)
            return
        is_killed = order.read_text() == "kill"
        with engines_stopped():
            started(self, setup, *rest, **more)
        if is_killed:
            os.kill(self.pid, signal.SIGKILL)

    EngineProcess.__init__ = start  # type: ignore[method-assign]


if __name__ == "__main__":
    lose(Path(sys.argv.pop(1)))
    run()
