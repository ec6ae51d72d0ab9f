"""A server of this installation, in a process of its own, for as long as it is measured."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from seqserve.errors import SeqserveError

# Within it calls under way may end.
_PATIENCE_S = 10.0
_READY = re.compile(r"seqserve ready on ([^\s,]+)")


@contextmanager
def local_server(flags: Sequence[str], *, cores: int | None = None) -> Iterator[str]:
    """Runs ``seqserve serve`` on free ports, and yields its address."""
    ports = ("--port", "0", "--metrics-port", "0", "--log-level", "warning")
    variables = os.environ.items()
    own = {name: value for name, value in variables if not name.startswith("SEQSERVE_")}
    # What ends this process ends the server too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryFile() as log:
            with _kept_to(cores):
                server = subprocess.Popen(
                    [sys.executable, "-m", "seqserve", "serve", *ports, *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=own,
                    text=True,
                )
            with server:
                try:
                    yield _address(server, log)
                finally:
                    _end(server)
    finally:
        signal.signal(signal.SIGTERM, before)


def _address(server: subprocess.Popen[str], log: IO[bytes]) -> str:
    assert server.stdout is not None
    if ready := next(filter(None, map(_READY.match, server.stdout)), None):
        return ready[1]
    log.seek(0)
    words = log.read().decode(errors="replace").strip()
    hint = "--target measures one that runs"
    raise SeqserveError(f"the server to measure did not start ({hint}): {words}")


@contextmanager
def _kept_to(cores: int | None) -> Iterator[None]:
    if cores is None or not hasattr(os, "sched_setaffinity"):
        yield
        return
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def _end(server: subprocess.Popen[str]) -> None:
    server.terminate()
    try:
        server.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        server.kill()
