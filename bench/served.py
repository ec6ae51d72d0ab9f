"""A server under load: requests a second, and the CPU time of all that take part."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from bench.drivers.server_process import ServerProcess
from bench.requests import caller_of, check_answers, steady_rate
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
    tokens: float
    """Of an answer."""

    @property
    def per_core_s(self) -> float:
        """Requests for each CPU second, those of the load included."""
        return 1e3 / (self.front_ms + self.engine_ms + self.load_ms)


def serve(
    server: ServerProcess,
    texts: Sequence[str],
    callers: int,
    seconds: float,
    fronts: int,
    seed: int,
) -> ServedRun:
    """Lets callers ask for one answer after another.

    Args:
        server: The server.
        texts: What they ask, drawn at random.
        callers: How many there are.
        seconds: How long they ask.
        fronts: Front processes of the largest server that gets this load; it has a process for
            each, but none for fewer than three cores.
        seed: Of the drawing.
    """
    processes = max(1, min(fronts, callers, available_cores() // _CORES_OF_A_LOAD))
    load = Load(sources=texts, seconds=seconds, in_flight=callers, timeout_s=60.0, seed=seed)
    caller = caller_of(server.address, connections=connections_for(fronts, processes))
    all_s, fronts_s = server.cpu_s(), server.front_cpu_s()
    sent = send(load, caller, processes, lambda _: None)
    all_s = server.cpu_s() - all_s
    fronts_s = [now - then for now, then in zip(server.front_cpu_s(), fronts_s, strict=True)]
    check_answers(sent.answers)
    count = len(sent.answers)
    return ServedRun(
        requests_per_s=steady_rate(sent.answers, seconds),
        front_ms=1e3 * sum(fronts_s) / count,
        engine_ms=1e3 * (all_s - sum(fronts_s)) / count,
        load_ms=1e3 * sent.cpu_s / count,
        busiest_front=max(fronts_s) / seconds,
        tokens=sum(answer.tokens for answer in sent.answers) / count,
    )


def medians(runs: Sequence[ServedRun]) -> Mapping[str, float]:
    """Returns the median of each figure."""
    records = [asdict(run) | {"per_core_s": run.per_core_s} for run in runs]
    return {name: statistics.median(each[name] for each in records) for name in records[0]}
