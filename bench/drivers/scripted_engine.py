"""A server of ours whose engine answers at once, without a model: what fronts do is left.

All else is real: the processes, and the messages between them.
"""

import itertools
import os
import socket
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

from bench.drivers.server_process import Server
from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.messages import Setup
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.host import Host
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Request
from seqserve_server.front.engine_client.client import EngineProcess
from seqserve_server.process.processes import ignore_signals
from seqserve_server.serve import app

_MODULE = "bench.drivers.scripted_engine"
_ROOT = Path(__file__).parents[2]
_FRONTS_OF_AN_ENGINE = 2


def scripted_server(server: Server, fronts: int) -> Server:
    """Returns a server of ours with the engine of this module, one process for two fronts."""
    engines = str(max(1, fronts // _FRONTS_OF_AN_ENGINE))
    layout = ["--front-processes", str(fronts), "--engine-processes", engines, "--workers", engines]
    # The server starts its engines without the folder of this process.
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return replace(
        server,
        module=_MODULE,
        arguments=[*server.arguments, *layout],
        variables={"PYTHONPATH": path},
    )


class ScriptedEngine:
    """Answers every request at once with its own source."""

    slots = max_rows = 64
    cache_bytes = queue_depth = low_queue_depth = slots_in_use = unrecorded_steps = 0
    is_broken = False
    gpu_memory = 0, 0
    paused = nullcontext()

    def __init__(self, _: Setup, deliver: Deliver, __: Observer) -> None:
        self._deliver = deliver
        self._beats = itertools.count()

    def start(self) -> None:
        """Has nothing to start."""

    def stop(self) -> None:
        """Has nothing to stop."""

    def submit(self, request: Request) -> None:
        """Answers."""
        answer = Hypothesis(request.generate.source, None, StopReason.EOS)
        self._deliver([(request, Finished([answer]))])

    def cancel(self, request: Request, *, is_late: bool = False) -> None:
        """Is too late."""

    @property
    def heartbeats(self) -> tuple[int, ...]:
        """A count that never stops."""
        return (next(self._beats),)


def _load(setup: Setup, deliver: Deliver, observer: Observer) -> Engine:
    return cast(Engine, ScriptedEngine(setup, deliver, observer))


def _main(arguments: list[str]) -> int:
    if arguments[0] == "serve":
        EngineProcess.module = _MODULE
        return app.main(arguments[1:])
    ignore_signals()
    channel, *doors = (socket.socket(fileno=int(each)) for each in arguments[2:])
    Host(channel, _load, *doors).run()
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
