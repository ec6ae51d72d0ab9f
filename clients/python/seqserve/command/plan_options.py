"""The options of ``seqserve plan``, and the server that it starts to measure it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import IO, Any

from seqserve import errors
from seqserve.command.connection import GenerateCallOptions
from seqserve.command.load_options import LoadOptions
from seqserve.errors import SeqserveError
from seqserve.options import flag_of, option
from seqserve.processes import available_cores

_measured = partial(option, group="what is measured")
_PROBES = 12
"""Loads of a search, more or less: `--duration` is their sum."""
_LOAD = ("dataset_path", "burstiness", "processes", "seed")


def _as_of_load(name: str) -> Any:
    [declared] = [each for each in fields(LoadOptions) if each.name == name]
    return field(default=declared.default, metadata={**declared.metadata, "group": "load"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(GenerateCallOptions):
    """The options of ``seqserve plan``."""

    rate: float = option(
        help="Requests a second that all servers together must handle.", minimum=0.001, maximum=1e9
    )
    p99_ms: float | None = option(
        None,
        help="Milliseconds within which 99 of 100 requests must be answered; required, unless"
        " --report has it.",
        minimum=0.001,
    )
    headroom: float = option(
        0.7,
        help="Share of its highest rate that each server gets. The rest is for bursts, for a"
        " failed server, and for the error of a short measurement.",
        minimum=0.05,
        maximum=1,
    )

    target: str = _measured(
        "",
        help="Address of the server to measure, host:port; by default the command starts one"
        " here, which needs the extra server.",
    )
    report: Path | None = _measured(
        None,
        help="Plan from a result instead of measuring: a file of `seqserve load --find-rate --p99"
        " MS --save-result`.",
        # Its variable differs in one letter from the variable of a port.
        has_variable=False,
    )
    cores: int | None = _measured(
        None,
        help="Cores of the measured server; each replica gets as many. A server that is started"
        " here is limited to them, by default to all of this machine.",
        minimum=1,
    )
    # Their variables are options of a server on this machine.
    slots: int | None = _measured(
        None,
        help="Slots of the server that is started here; by default as `seqserve serve` chooses.",
        minimum=1,
        maximum=4096,
        has_variable=False,
    )
    model_repository: Path | None = _measured(
        None,
        help="Folder of models of the server that is started here; by default models.",
        has_variable=False,
    )

    duration: float = option(
        60.0,
        help="Approximate length of the search in seconds; a longer one is more exact.",
        minimum=1,
        group="load",
    )
    dataset_path: Path | None = _as_of_load("dataset_path")
    burstiness: float = _as_of_load("burstiness")
    processes: int = _as_of_load("processes")
    seed: int = _as_of_load("seed")

    json: bool = option(False, help="Print the plan as one JSON object.", group="output")

    def __post_init__(self) -> None:
        for name, reason in self._faults().items():
            if reason:
                raise errors.OptionError(f"{flag_of(name)}: {reason}")

    def _faults(self) -> dict[str, str | bool]:
        alone = "is of a server that is started here; leave it out with --target and --report"
        return {
            "target": ("," in self.target and "one server is measured, not several")
            or (bool(self.target) and self.report is not None and "does not go with --report"),
            "p99_ms": self.p99_ms is None and self.report is None and "is required; see --help",
            "cores": self.is_started
            and (self.cores or 0) > available_cores()
            and f"a server that is started here has {available_cores()} at most",
            "slots": not self.is_started and self.slots is not None and alone,
            "model_repository": not self.is_started and self.model_repository is not None and alone,
        }

    @property
    def is_started(self) -> bool:
        """Whether the server is started here."""
        return not self.target and self.report is None

    @property
    def known_cores(self) -> int | None:
        """Cores of the server; None if they are unknown."""
        return self.cores or (available_cores() if self.is_started else None)

    @contextmanager
    def load_options(self) -> Generator[LoadOptions, None, None]:
        """Starts a server unless a target is given, and yields the load that measures it."""
        call = {each.name for each in fields(GenerateCallOptions)}
        load = {name: getattr(self, name) for name in (*call, *_LOAD)}
        load |= {"find_rate": True, "p99": self.p99_ms, "duration": self.duration / _PROBES}
        if not self.is_started:
            yield LoadOptions(**load)
            return
        # TLS and tokens of another server do not apply here.
        guards = [name for name in load if name.startswith(("tls", "token"))]
        with local_server(self._flags(), cores=self.known_cores) as target:
            yield LoadOptions(**{**load, **dict.fromkeys(guards), "target": target})

    def _flags(self) -> list[str]:
        flags = {
            "model_repository": self.model_repository,
            "default_model": self.model,
            "slots": self.slots,
            "workers": self.known_cores,
            # The load represents many clients.
            "caller_share": 1,
        }
        given = {flag_of(name): str(value) for name, value in flags.items() if value is not None}
        return [word for pair in given.items() for word in pair]


# Within it calls under way may end.
_PATIENCE_S = 10.0
_READY = re.compile(r"seqserve ready on ([^\s,]+)")


@contextmanager
def local_server(flags: Sequence[str], *, cores: int | None = None) -> Iterator[str]:
    """Runs ``seqserve serve`` on free ports, and yields its address."""
    ports = ("--port", "0", "--metrics-port", "0", "--log-level", "warning")
    variables = os.environ.items()
    own = {name: value for name, value in variables if not name.startswith("SEQSERVE_")}
    # A signal that ends this process ends the server too.
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
