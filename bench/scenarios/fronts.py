"""Fronts alone, before an engine that answers at once.

Requests a second show what fronts can do where they have a core each. Requests for each CPU second
show what further fronts cost, on any number of cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.drivers.scripted_engine import scripted_server
from bench.drivers.server_process import ServerProcess, seqserve_server
from bench.models import shipped_artifacts
from bench.requests import mixed
from bench.served import ServedRun, medians, serve
from bench.tables import Table, shown, spread_of_ratios
from seqserve.processes import available_cores
from seqserve_server.engine.runtime import doubling


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    rounds: int = 5
    turn_s: float = 2.0
    """How long a turn takes."""
    fronts: Sequence[int] = ()
    """Numbers of front processes; if there are none, 1, twice as many each time, up to 4 or half of
    the cores."""
    callers: Sequence[int] = ()
    """Numbers of requests in flight; 16 and 64 if there are none."""


def measure(plan: Plan, artifact: Path | None = None) -> Iterator[dict[str, Any]]:
    """Lets servers with each number of fronts take turns; yields after each round.

    Args:
        plan: What is measured.
        artifact: Gives the tokenizer; the shipped one if None.
    """
    fronts = plan.fronts or doubling(max(4, available_cores() // 2))
    callers = plan.callers or (16, 64)
    texts = mixed(10_000)
    runs: dict[tuple[int, int], list[ServedRun]] = {
        (several, each): [] for each in callers for several in fronts
    }
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        plain = seqserve_server(artifact or shipped_artifacts()[0], Path(place))
        servers = {
            several: stack.enter_context(
                ServerProcess(scripted_server(plain, several), Path(place) / f"{several}.log")
            )
            for several in fronts
        }
        # Round 0 only warms up.
        for round_ in range(plan.rounds + 1):
            for (several, each), done in runs.items():
                server = servers[several]
                run = serve(server, texts, each, plan.turn_s, max(fronts), round_)
                done += [run] * bool(round_)
            if round_:
                yield {"rounds": round_, "turn_s": plan.turn_s, "runs": _report(runs, fronts[0])}


def _report(runs: Mapping[tuple[int, int], list[ServedRun]], base: int) -> list[dict[str, Any]]:
    """``base`` is the number of fronts to which the others are compared."""
    return [
        {
            "fronts": fronts,
            "callers": callers,
            **medians(several),
            **by_base(several, runs[base, callers]),
        }
        for (fronts, callers), several in runs.items()
    ]


def by_base(ours: Sequence[ServedRun], theirs: Sequence[ServedRun]) -> dict[str, Any]:
    """Returns the ratios, within the rounds, of requests a second and for each CPU second."""
    return {
        f"{name}_by_base": spread_of_ratios(
            [getattr(run, name) for run in ours], [getattr(run, name) for run in theirs]
        )
        for name in ("requests_per_s", "per_core_s")
    }


_COLUMNS = {
    "fronts, callers": "{fronts}, {callers}",
    "requests/s": "{requests_per_s:,.0f}",
    "times the first": "{speed}",
    "CPU ms a request: fronts": "{front_ms:.3f}",
    "engine": "{engine_ms:.3f}",
    "load": "{load_ms:.3f}",
    "requests for each CPU second": "{per_core_s:,.0f}",
    "times the first's": "{cost}",
    "cores of the busiest front": "{busiest_front:.2f}",
}


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure` yielded."""
    records = [
        run
        | {
            "speed": shown(run["requests_per_s_by_base"]),
            "cost": shown(run["per_core_s_by_base"]),
        }
        for run in report["runs"]
    ]
    note = f"An engine that answers at once; {report['rounds']} rounds of {report['turn_s']:g} s."
    return [Table.of(_COLUMNS, records, note)]
