"""Servers under load: requests a second, and the CPU time of all that take part.

On a device, sources never repeat, and the first requests are those that a new server gets.
"""

import os
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.drivers.server_process import Server, ServerProcess
from bench.models import amend, random_sources
from bench.requests import caller_of, check_answers
from bench.tables import Table, shown, spread_of_ratios
from seqserve.errors import SeqserveError
from seqserve.load.grpc_callers import GrpcCaller
from seqserve.load.load import Load, send
from seqserve.load.result import result_of
from seqserve.processes import available_cores
from seqserve.requests import generate_request
from seqserve_model.config import TransformerConfig
from seqserve_server.artifact.manifest import WEIGHTS, Manifest
from seqserve_server.front.config import ServeOptions

_CONNECTIONS_OF_A_FRONT, _CORES_OF_A_LOAD = 8, 3
_SECONDS = 10.0
"""How long callers ask on a device."""
_SOURCES = 50_000
_CALLERS_A_PROCESS = 32
_LEFT_CORES = 4
"""For the server."""


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


def serve_on_device(
    artifact: Path, config: TransformerConfig, callers: int, length: int, device: str
) -> dict[str, Any]:
    """Starts a server and lets callers ask it, each for one answer after another.

    Returns:
        Answered requests and tokens a second, milliseconds of a request, and seconds until the
        server was ready.
    """
    rows = random_sources(_SOURCES, seed=11, config=config)
    texts = [" ".join(f"t{token}" for token in row[:-1]) for row in rows]
    with tempfile.TemporaryDirectory(dir=artifact.parent) as place:
        server = _server(artifact, Path(place, "models"), callers, length, device)
        try:
            with ServerProcess(server, Path(place, "log")) as process:
                result = _load(process.address, texts, callers)
                ready_s = process.ready_after_s
                front_cores = sum(process.front_cpu_s()) / result["duration"]
                first_token_s = _mean(process, "time_to_first_token_seconds")
                step_s = _mean(process, "step_duration_seconds")
        except (SystemExit, SeqserveError) as error:
            raise RuntimeError(str(error)) from error
    return {
        "ready_s": ready_s,
        "requests_per_s": result["request_throughput"],
        "tokens_per_s": length * result["request_throughput"],
        "p50_ms": result["median_e2el_ms"],
        "p99_ms": result["p99_e2el_ms"],
        "failed": result["failed"],
        "front_cores": front_cores,
        "first_token_ms": 1e3 * first_token_s,
        "step_us": 1e6 * step_s,
    }


def _mean(process: ServerProcess, name: str) -> float:
    total, count = (process.counter(f"seqserve_{name}_{part}") for part in ("sum", "count"))
    return total / count


def _server(artifact: Path, repository: Path, callers: int, length: int, device: str) -> Server:
    manifest = Manifest.read(artifact)
    place = repository / manifest.name / str(manifest.version)
    place.mkdir(parents=True)
    for file in artifact.iterdir():
        # The weights are large.
        (os.link if file.name == WEIGHTS else shutil.copy2)(file, place / file.name)
    amend(place, generation={"max_decoding_length": length, "min_decoding_length": length})
    arguments = ["serve", "--model-repository", str(repository), "--provider", device]
    arguments += ["--port", "0", "--metrics-port", "0", "--workers", "1"]
    arguments += ["--slots", str(max(callers, 8)), "--max-queue-s", "60", "--caller-share", "1"]
    return Server("seqserve", "seqserve", arguments)


def _load(address: str, texts: Sequence[str], callers: int) -> dict[str, Any]:
    processes = min(-(-callers // _CALLERS_A_PROCESS), max(1, available_cores() - _LEFT_CORES))
    connections = connections_for(ServeOptions().front_count(), processes)
    caller = GrpcCaller(address, generate_request(""), streamed=False, connections=connections)
    load = Load(sources=texts, seconds=_SECONDS, in_flight=callers)
    sent = send(load, caller, processes, lambda _: None)
    return result_of(sent, {}, seconds=_SECONDS, streamed=False, goodput={})
