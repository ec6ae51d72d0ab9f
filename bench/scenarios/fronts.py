"""Servers alone: their fronts before an engine that answers at once, and what a start takes.

Requests a second show what fronts can do where they have a core each. Requests for each CPU second
show what further fronts cost, on any number of cores.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.drivers.scripted_engine import scripted_server
from bench.drivers.server_process import ServerProcess, seqserve_server
from bench.models import shipped_artifacts
from bench.requests import PAIRS, everyday, mixed
from bench.served import Served, serve, served_table
from bench.tables import Table, shown, spread
from seqserve.processes import available_cores
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.engine.runtime import doubling


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    rounds: int = 5
    turn_s: float = 2.0
    """How long a turn takes."""
    fronts: Sequence[int] = ()
    """Numbers of front processes; if empty 1, doubling up to 4 or half of the cores."""
    callers: Sequence[int] = ()
    """Numbers of requests in flight; 16 and 64 if empty."""


def measure(plan: Plan, artifact: Path | None = None) -> Iterator[dict[str, Any]]:
    """Lets servers with each number of fronts take turns; yields after each round."""
    texts = mixed(PAIRS)
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        plain = seqserve_server(artifact or shipped_artifacts()[0], Path(place))
        served = Served(
            {
                fronts: stack.enter_context(
                    ServerProcess(scripted_server(plain, fronts), Path(place) / f"{fronts}.log")
                )
                for fronts in plan.fronts or doubling(max(4, available_cores() // 2))
            }
        )
        for round_ in range(plan.rounds + 1):
            served.take_turns(texts, plan.callers or (16, 64), plan.turn_s)
            if round_:
                yield {"rounds": round_, "turn_s": plan.turn_s, "runs": served.report()}


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure` yielded."""
    note = f"An engine that answers at once; {report['rounds']} rounds of {report['turn_s']:g} s."
    return [served_table(report["runs"], {}, {}, note)]


_MB = 1e6
_CALLERS = 64
_LOAD_S = 0.5


def measure_start(rounds: int, artifact: Path | None = None) -> dict[str, Any]:
    """Starts servers, of the shipped model if no artifact is given; its files are in memory."""
    artifact = artifact or shipped_artifacts()[0]
    manifest = Manifest.read(artifact)
    with tempfile.TemporaryDirectory() as place:
        command, log = seqserve_server(artifact, Path(place)), Path(place) / "log"
        starts = []
        for _ in range(rounds):
            with ServerProcess(command, log) as server:
                ready_mb = server.resident_bytes() / _MB
                serve(server, everyday(), _CALLERS, _LOAD_S)
                loaded_mb = server.resident_bytes() / _MB
                starts.append((server.ready_after_s, ready_mb, loaded_mb))
    figures = zip(("ready_s", "ready_mb", "loaded_mb"), zip(*starts, strict=True), strict=True)
    return {
        "model": manifest.label,
        "precision": manifest.precision,
        **{name: spread(values) for name, values in figures},
    }


def start_tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure_start` returned."""
    memory = (f"{shown(report[name], 0)} MB" for name in ("ready_mb", "loaded_mb"))
    row = [f"{report['model']}, {report['precision']}", f"{shown(report['ready_s'])} s", *memory]
    return [Table(["a start", "ready after", "memory then", "memory after load"], [row])]
