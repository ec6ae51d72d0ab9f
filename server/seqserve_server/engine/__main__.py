"""Runs one engine in a separate process and serves it over a socket to the front.

A separate process, because the engine's steps and the front's event loop would otherwise share one
interpreter lock: a step would wait for protobuf, and protobuf for a step. When the process ends,
the operating system takes back its memory.
"""

import gc
import sys
import threading
import time

from seqserve_server.contract.messages import Setup
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.host import Host
from seqserve_server.engine.loading import load
from seqserve_server.engine.observer import Observer
from seqserve_server.process import processes
from seqserve_server.process.processes import TRIM_INTERVAL_S, malloc_trim


def _loaded(setup: Setup, deliver: Deliver, observer: Observer) -> Engine:
    engine = load(setup, deliver, observer)
    # Everything allocated so far stays, so the garbage collector need not look at it again.
    gc.collect()
    gc.freeze()
    threading.Thread(target=trim_memory, name="trim", daemon=True).start()
    return engine


def trim_memory(interval_s: float = TRIM_INTERVAL_S) -> None:
    """Returns freed memory to the operating system at an interval, as long as the process lives."""
    trim = malloc_trim()
    while trim is not None:
        time.sleep(interval_s)
        trim(0)


def main(arguments: list[str]) -> None:
    """Serves a socket until the front closes it."""
    channel, *doors = processes.begin(arguments)
    Host(channel, _loaded, *doors).run()


if __name__ == "__main__":
    main(sys.argv[1:])
