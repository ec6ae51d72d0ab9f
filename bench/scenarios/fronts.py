"""Fronts alone, before an engine that answers at once.

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
from bench.requests import PAIRS, mixed
from bench.served import Served, served_table
from bench.tables import Table
from seqserve.processes import available_cores
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
    """Lets servers with each number of fronts take turns; yields after each round.

    Args:
        plan: The measurements. artifact: Artifact of the tokenizer; the shipped one if None.
    """
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
