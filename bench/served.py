"""Servers under load: requests a second, and the CPU time of all that take part."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.drivers.server_process import ServerProcess
from bench.requests import caller_of, check_answers
from bench.tables import Table, shown, spread_of_ratios
from seqserve.load.load import Load, send
from seqserve.processes import available_cores

_CONNECTIONS_OF_A_FRONT, _CORES_OF_A_LOAD = 8, 3


def connections_for(fronts: int, processes: int) -> int:
    """Returns how many connections each process of a load needs, so that every front gets some.

    The system spreads them at random.
    """
    return -(-_CONNECTIONS_OF_A_FRONT * fronts // processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """One turn of a server; milliseconds are CPU time for a request."""

    requests_per_s: float
    front_ms: float
    """Of all processes that take calls."""
    engine_ms: float
    load_ms: float
    busiest_front: float
    """CPU seconds a second of one front, which can hardly have more than one."""

    @property
    def per_cpu_s(self) -> float:
        """Requests for each CPU second, the load's included."""
        return 1e3 / (self.front_ms + self.engine_ms + self.load_ms)


def serve(
    server: ServerProcess,
    texts: Sequence[str],
    callers: int,
    seconds: float,
    fronts: int = 1,
    seed: int = 0,
) -> ServedRun:
    """Lets callers ask for one answer after another.

    Args:
        fronts: Front processes of the largest server that gets this load; it has a process for
            each, but none for fewer than three cores.
    """
    processes = max(1, min(fronts, callers, available_cores() // _CORES_OF_A_LOAD))
    load = Load(sources=texts, seconds=seconds, in_flight=callers, timeout_s=60.0, seed=seed)
    caller = caller_of(server.address, connections=connections_for(fronts, processes))
    all_s, fronts_s = server.cpu_s(), server.front_cpu_s()
    sent = send(load, caller, processes, lambda _: None)
    all_s = server.cpu_s() - all_s
    fronts_s = [now - then for now, then in zip(server.front_cpu_s(), fronts_s, strict=True)]
    check_answers(sent.answers)
    count, ended_s = len(sent.answers), max(each.due_s + each.total_s for each in sent.answers)
    return ServedRun(
        requests_per_s=count / ended_s,
        front_ms=1e3 * sum(fronts_s) / count,
        engine_ms=1e3 * (all_s - sum(fronts_s)) / count,
        load_ms=1e3 * sent.cpu_s / count,
        busiest_front=max(fronts_s) / seconds,
    )


@dataclass(slots=True)
class Served:
    """Servers that differ in the number of their fronts, and what they did by turns."""

    servers: Mapping[int, ServerProcess]
    """By the number of fronts."""
    runs: dict[tuple[int, int], list[ServedRun]] = field(default_factory=dict)
    """By the numbers of fronts and of callers; the first run only warms up."""

    def take_turns(self, texts: Sequence[str], callers: Iterable[int], seconds: float) -> None:
        """Lets each number of callers ask each server."""
        for count in callers:
            for fronts, server in self.servers.items():
                runs = self.runs.setdefault((fronts, count), [])
                most = max(self.servers)
                runs.append(serve(server, texts, count, seconds, most, len(runs)))

    def report(self, **rates: Sequence[float]) -> list[dict[str, Any]]:
        """Computes medians, and ratios within the rounds: to the first server, and to ``rates``."""
        base = next(iter(self.servers))
        return [
            {
                "fronts": fronts,
                "callers": callers,
                **_medians(runs[1:]),
                **{
                    f"{name}_by_first": spread_of_ratios(
                        _figures(runs, name), _figures(self.runs[base, callers], name)
                    )
                    for name in ("requests_per_s", "per_cpu_s")
                },
                **{
                    name: spread_of_ratios(_figures(runs, "requests_per_s"), theirs)
                    for name, theirs in rates.items()
                },
            }
            for (fronts, callers), runs in self.runs.items()
        ]


def _figures(runs: Sequence[ServedRun], name: str) -> list[float]:
    return [getattr(run, name) for run in runs[1:]]


def _medians(runs: Sequence[ServedRun]) -> dict[str, float]:
    records = [asdict(run) | {"per_cpu_s": run.per_cpu_s} for run in runs]
    return {name: statistics.median(each[name] for each in records) for name in records[0]}


_COLUMNS = {
    "fronts, callers": "{fronts}, {callers:,}",
    "requests/s": "{requests_per_s:,.0f}",
    "times the first": "{speed}",
    "CPU ms a request: fronts": "{front_ms:.2f}",
    "engines": "{engine_ms:.2f}",
    "load": "{load_ms:.2f}",
    "requests a CPU second": "{per_cpu_s:,.0f}",
    "times the first's": "{cost}",
    "cores of the busiest front": "{busiest_front:.2f}",
}


def served_table(
    runs: Iterable[Mapping[str, Any]],
    before: Mapping[str, str],
    after: Mapping[str, str],
    note: str = "",
) -> Table:
    """Lays out what :meth:`Served.report` returned, with further columns."""
    records = [
        {
            **run,
            "speed": shown(run["requests_per_s_by_first"]),
            "cost": shown(run["per_cpu_s_by_first"]),
        }
        for run in runs
    ]
    return Table.of({**before, **_COLUMNS, **after}, records, note)
