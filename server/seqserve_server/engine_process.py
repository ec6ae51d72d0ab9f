"""A process that holds one engine: how the server begins and ends it, and what it does.

The engine's steps and the server's event loop would else share one interpreter lock, and a step
would wait for protobuf as protobuf for it. What the process holds, its end gives back for certain.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from seqserve.errors import SeqserveError
from seqserve_server.config import LogFormat, LogLevel
from seqserve_server.engine.mail import Setup, packed
from seqserve_server.errors import ArtifactError, StartupError
from seqserve_server.logs import configure

if TYPE_CHECKING:
    from seqserve_server.engine.engine import Deliver, Engine
    from seqserve_server.engine.observer import Observer

# A step may be under way, and warming up takes a while on a slow machine.
_PATIENCE_S = 10.0

_log = logging.getLogger(__name__)


class EngineProcess:
    """The server's end."""

    def __init__(self, setup: Setup, log_format: LogFormat, log_level: LogLevel) -> None:
        """Begins the process and tells it what to load.

        Args:
            setup: What to load.
            log_format: Of its log lines, which go where the server's go.
            log_level: Of its log lines.
        """
        self.channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", __name__),
                    *(str(theirs.fileno()), log_format.value, log_level.value),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self.channel.sendall(packed(setup))

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def end(self) -> None:
        """Waits until it has ended, and makes it where it does not; blocks."""
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            # No fault of its own where it was still loading what was refused meanwhile.
            _log.warning("an engine's process did not end in %g s and was killed", _PATIENCE_S)
            return
        if self._process.returncode:
            # Negative is the signal that ended it: 9 may be the system, short of memory.
            _log.error("an engine's process ended with status %d", self._process.returncode)


def load(setup: Setup, deliver: Deliver, observer: Observer) -> Engine:
    """Loads a model, warms it up, and has it say what it said at export.

    Raises:
        ArtifactError: It cannot be run.
        ProviderError: The execution provider is not available.
        StartupError: The caches do not fit into memory.
    """
    # Here, so that the server itself loads none of it.
    from seqserve_server.engine.engine import Engine
    from seqserve_server.manifest import Manifest
    from seqserve_server.runtime import Runtime
    from seqserve_server.self_test import run_self_test
    from seqserve_server.tokenizer import Tokenizer

    manifest = Manifest.load(setup.folder)
    try:
        runtime = Runtime(setup.folder, manifest, setup.provider, setup.threads)
        tokenizer = Tokenizer.load(setup.folder / "tokenizer.json")
        engine = Engine(runtime, setup.limits, deliver, observer, tokenizer.decode)
        engine.warm_up()
        run_self_test(runtime, tokenizer)
    except SeqserveError:
        raise
    except MemoryError:
        raise StartupError(
            f"--slots: the caches of {setup.limits.slots} rows of {manifest.label} do not fit"
            " into memory; ask for fewer"
        ) from None
    except Exception as error:
        # What a broken artifact makes a library raise must not keep sound ones from service.
        _log.exception("model %s", manifest.label)
        raise ArtifactError(
            f"{setup.folder}: cannot be run: {type(error).__name__}: {error}"
        ) from error
    # What was made until here stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    return engine


def main(arguments: list[str]) -> None:
    """Serves the socket whose number is given until the server closes it.

    Args:
        arguments: Number of the socket, format and least level of log lines.
    """
    from seqserve_server.engine.host import Host

    # The server is told to end, and ends us when its calls have.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    descriptor, log_format, log_level = arguments
    configure(LogFormat(log_format), LogLevel(log_level))
    Host(socket.socket(fileno=int(descriptor)), load).run()


if __name__ == "__main__":
    main(sys.argv[1:])
