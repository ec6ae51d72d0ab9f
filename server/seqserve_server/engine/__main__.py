"""Runs one engine in a process of its own and serves it over a socket to the front.

A process of its own, because the engine's steps and the front's event loop would share one
interpreter lock: a step would wait for protobuf, and protobuf for a step. When the process ends,
the operating system takes back its memory.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
import threading
import time

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import ArtifactError, StartupError
from seqserve_server.contract.logs import LogFormat, LogLevel, configure
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.memory_trim import TRIM_INTERVAL_S, malloc_trim
from seqserve_server.contract.messages import Setup
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.host import Host
from seqserve_server.engine.loading_log import LoadingLog
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.self_test import run_self_test

_log = logging.getLogger(__name__)


def load(setup: Setup, deliver: Deliver, observer: Observer) -> Engine:
    """Loads a model, warms it up, and runs its self-test.

    Raises:
        ArtifactError: The artifact cannot be run.
        ProviderError: The execution provider is not available.
        StartupError: The caches do not fit into memory.
    """
    label = "/".join(setup.folder.parts[-2:])
    try:
        with LoadingLog(label) as log:
            engine = _load(setup, deliver, observer, log)
    except SeqserveError:
        raise
    except MemoryError:
        raise StartupError(
            f"--slots: the caches of {setup.limits.slots} rows of {label} do not fit"
            " into memory; ask for fewer"
        ) from None
    except Exception as error:
        # What a broken artifact makes a library raise must not keep sound ones from service.
        _log.exception("model %s", label)
        raise ArtifactError(
            f"{setup.folder}: cannot be run: {type(error).__name__}: {error}"
        ) from error
    # Everything allocated so far stays, so the garbage collector need not look at it again.
    gc.collect()
    gc.freeze()
    return engine


def _load(setup: Setup, deliver: Deliver, observer: Observer, log: LoadingLog) -> Engine:
    log.enter("checking files")
    manifest = Manifest.load(setup.folder)
    log.enter("opening graphs")
    runtime = Runtime(setup.folder, manifest, setup.provider, setup.threads)
    tokenizer = Tokenizer.of_artifact(setup.folder, manifest)
    engine = Engine(runtime, setup.limits, deliver, observer, tokenizer.decode)
    log.enter("warming up")
    engine.warm_up()
    log.enter("decoding the sentence of its self-test")
    run_self_test(runtime, tokenizer)
    return engine


def trim_memory(interval_s: float = TRIM_INTERVAL_S) -> None:
    """Returns freed memory to the operating system at an interval, as long as the process lives."""
    trim = malloc_trim()
    while trim is not None:
        time.sleep(interval_s)
        trim(0)


def main(arguments: list[str]) -> None:
    """Serves a socket until the front closes it."""
    # The front gets these signals too; it ends this process once its calls have ended.
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    descriptor, log_format, log_level = arguments
    configure(LogFormat(log_format), LogLevel(log_level))
    threading.Thread(target=trim_memory, name="trim", daemon=True).start()
    Host(socket.socket(fileno=int(descriptor)), load).run()


if __name__ == "__main__":
    main(sys.argv[1:])
