"""What the server adds to its engine: tokens per second and per CPU second, start, and memory.

    python -m bench.overhead           a table, about a minute

The engine alone and the server with its callers take turns on the same sentences in the same order,
with the same number in flight. The caller, a process of its own, shares the cores with the server;
tokens per CPU second of the server leave it out, and are what a caller elsewhere would see.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.artifacts import newest, repository_of
from bench.comparison import spread
from bench.engine import EngineProcess, EngineRun
from bench.latency import Answer
from bench.load import Caller, closed_loop
from bench.process import PATIENT, ServerProcess
from bench.sentences import everyday
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.tokenizer import Tokenizer

_MB = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and for how long."""

    rounds: int = 5
    repeat: int = 10
    """Times the sentences are decoded in a round."""
    in_flight: int = 64
    starts: int = 5
    """Servers started for the times and the memory of a start."""
    seed: int = 1
    """Of the order of the sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRun:
    """One decoding of all sources through gRPC."""

    tokens: int
    wall_s: float
    cpu_s: float
    """Of all processes of the server."""
    front_cpu_s: float
    """Of that, in the process that speaks gRPC; the others run a model each."""
    event_loop_cpu_s: float
    """Of that in turn, in the thread that speaks gRPC and turns text into tokens and back."""
    client_cpu_s: float
    step_s: float
    """In steps, on the clock, over all workers."""
    outside_s: float
    """Of these, outside ONNX Runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a server."""

    ready_s: float
    """From the start of the process until it serves; its files are in the system's cache."""
    ready_bytes: int
    """Resident then, over all processes of the server, what they share counted once."""
    loaded_bytes: int
    """Resident once all slots have been in use."""


def measure(artifact: Path, plan: Plan) -> dict[str, Any]:
    """Runs the comparison.

    Args:
        artifact: What is served.
        plan: What is measured.

    Returns:
        Medians over the rounds and the starts; spreads are median, low and high.
    """
    manifest = Manifest.read(artifact)
    texts = everyday() * plan.repeat
    random.Random(plan.seed).shuffle(texts)
    tokenizer = Tokenizer.load(artifact / "tokenizer.json")
    sources = [tokenizer.encode(text) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        repository = repository_of(artifact, Path(folder) / "models")
        log = Path(folder) / "log"
        starts = [_start(repository, log, texts, plan) for _ in range(plan.starts)]
        with (
            EngineProcess(artifact, sources, plan.in_flight) as engine,
            _server(repository, log) as server,
        ):
            rounds = uvloop.run(_rounds(engine, server, texts, plan))
    return {
        "model": manifest.label,
        "precision": manifest.precision,
        "plan": asdict(plan),
        "requests": len(texts),
        **throughput(rounds, len(texts)),
        "start": {
            "ready_s": spread([start.ready_s for start in starts]),
            "ready_mb": spread([start.ready_bytes / _MB for start in starts]),
            "loaded_mb": spread([start.loaded_bytes / _MB for start in starts]),
        },
    }


def _server(repository: Path, log: Path) -> ServerProcess:
    ports = ["--port", "0", "--metrics-port", "0"]
    arguments = ["serve", "--model-repository", str(repository), *ports, *PATIENT]
    return ServerProcess("seqserve", arguments, log)


def _start(repository: Path, log: Path, texts: Sequence[str], plan: Plan) -> Start:
    with _server(repository, log) as server:
        ready_bytes = server.resident_bytes()
        uvloop.run(_load_once(server, texts[: 4 * plan.in_flight], plan))
        return Start(
            ready_s=server.ready_after_s,
            ready_bytes=ready_bytes,
            loaded_bytes=server.resident_bytes(),
        )


async def _load_once(server: ServerProcess, texts: Sequence[str], plan: Plan) -> None:
    async with Caller(server.address) as caller:
        _check(await closed_loop(caller, texts, plan.in_flight))


async def _rounds(
    engine: EngineProcess, server: ServerProcess, texts: Sequence[str], plan: Plan
) -> list[tuple[EngineRun, ServerRun]]:
    rounds: list[tuple[EngineRun, ServerRun]] = []
    async with Caller(server.address) as caller:
        # Round 0 only warms both up.
        for round_ in range(plan.rounds + 1):
            alone = engine.decode()
            served = await _served(server, caller, texts, plan)
            if alone.tokens != served.tokens:
                raise SystemExit(
                    f"{alone.tokens} tokens alone, {served.tokens} served: not comparable"
                )
            if round_:
                rounds.append((alone, served))
    return rounds


async def _served(
    server: ServerProcess, caller: Caller, texts: Sequence[str], plan: Plan
) -> ServerRun:
    before, cpu_s = _step_seconds(server), _cpu_seconds(server)
    client_cpu_s, began_s = time.process_time(), time.perf_counter()
    answers = await closed_loop(caller, texts, plan.in_flight)
    wall_s, client_cpu_s = time.perf_counter() - began_s, time.process_time() - client_cpu_s
    spent_s = [now - then for now, then in zip(_cpu_seconds(server), cpu_s, strict=True)]
    after = _step_seconds(server)
    _check(answers)
    return ServerRun(
        tokens=sum(answer.tokens for answer in answers),
        wall_s=wall_s,
        cpu_s=spent_s[0],
        front_cpu_s=spent_s[1],
        event_loop_cpu_s=spent_s[2],
        client_cpu_s=client_cpu_s,
        step_s=after[0] - before[0],
        outside_s=after[1] - before[1],
    )


def _step_seconds(server: ServerProcess) -> tuple[float, float]:
    return (
        server.counter("seqserve_step_seconds_total"),
        server.counter("seqserve_step_outside_runtime_seconds_total"),
    )


def _cpu_seconds(server: ServerProcess) -> tuple[float, float, float]:
    return server.cpu_s(), server.front_cpu_s(), server.main_thread_cpu_s()


def _check(answers: Sequence[Answer]) -> None:
    errors = {answer.error for answer in answers if answer.error}
    if errors:
        raise SystemExit(f"calls failed: {', '.join(sorted(errors))}")


def throughput(rounds: Sequence[tuple[EngineRun, ServerRun]], requests: int) -> dict[str, Any]:
    """Gives medians over rounds of so many requests, and how the two compare within a round."""
    alone, served = [run for run, _ in rounds], [run for _, run in rounds]
    return {
        "engine": _rates(alone, requests),
        "server": {
            **_rates(served, requests),
            "event_loop_cpu_ms_per_request": statistics.median(
                [1e3 * run.event_loop_cpu_s / requests for run in served]
            ),
            "client_cpu_ms_per_request": statistics.median(
                [1e3 * run.client_cpu_s / requests for run in served]
            ),
            "step_share_outside_runtime": statistics.median(
                [run.outside_s / run.step_s for run in served]
            ),
            "cpu_share_outside_runtime": statistics.median([_outside_share(run) for run in served]),
        },
        "server_by_engine": {
            "tokens_per_s": spread(
                [engine.wall_s / server.wall_s for engine, server in rounds],
            ),
            "tokens_per_cpu_s": spread([engine.cpu_s / server.cpu_s for engine, server in rounds]),
        },
    }


def _outside_share(run: ServerRun) -> float:
    """Estimates the share of the server's CPU time that is not in ONNX Runtime.

    All of the process's that speaks gRPC is not; that of the others, which is the workers', is
    taken to be shared out as the time of their steps on the clock is.
    """
    workers_s = run.cpu_s - run.front_cpu_s
    return (run.front_cpu_s + workers_s * run.outside_s / run.step_s) / run.cpu_s


def _rates(runs: Sequence[EngineRun] | Sequence[ServerRun], requests: int) -> dict[str, float]:
    return {
        "tokens_per_s": statistics.median([run.tokens / run.wall_s for run in runs]),
        "tokens_per_cpu_s": statistics.median([run.tokens / run.cpu_s for run in runs]),
        "cpu_ms_per_request": statistics.median([1e3 * run.cpu_s / requests for run in runs]),
        "cores_busy": statistics.median([run.cpu_s / run.wall_s for run in runs]),
    }


def print_table(report: dict[str, Any]) -> None:
    """Prints what :func:`measure` gave."""
    plan, server, ratio = report["plan"], report["server"], report["server_by_engine"]
    print(
        f"{report['model']}, {report['precision']}: {report['requests']} requests,"
        f" {plan['in_flight']} in flight, medians of {plan['rounds']} rounds\n"
    )
    print(f"  {'':24}{'tokens/s':>10}{'/CPU s':>10}{'CPU ms/request':>16}{'cores busy':>12}")
    for name in ("engine", "server"):
        rates = report[name]
        print(
            f"  {'through gRPC' if name == 'server' else 'engine alone':24}"
            f"{rates['tokens_per_s']:10,.0f}{rates['tokens_per_cpu_s']:10,.0f}"
            f"{rates['cpu_ms_per_request']:16.2f}{rates['cores_busy']:12.2f}"
        )
    for name in ("tokens_per_s", "tokens_per_cpu_s"):
        spread = ratio[name]
        print(
            f"  served / alone, {name.replace('_', ' '):20}{spread['median']:.2f}"
            f" ({spread['low']:.2f}-{spread['high']:.2f})"
        )
    print(
        f"  CPU ms a request of the event loop {server['event_loop_cpu_ms_per_request']:.2f},"
        f" of the caller {server['client_cpu_ms_per_request']:.2f}\n"
        f"  outside ONNX Runtime {server['step_share_outside_runtime']:.1%} of the time in steps,"
        f" {server['cpu_share_outside_runtime']:.1%} of the server's CPU time (estimated)\n"
    )
    start = report["start"]
    print(f"  start to ready  {_line(start['ready_s'], 2)} s\n"
          f"  resident        {_line(start['ready_mb'], 0)} MB at the start,"
          f" {_line(start['loaded_mb'], 0)} MB after load\n", flush=True)  # fmt: skip


def _line(spread: dict[str, float], digits: int) -> str:
    median, low, high = (f"{spread[name]:.{digits}f}" for name in ("median", "low", "high"))
    return f"{median} ({low}-{high})"


def main() -> int:
    """Runs the comparison and prints it."""
    options = _options()
    plan = Plan(
        rounds=options.rounds,
        repeat=options.repeat,
        in_flight=options.in_flight,
        starts=options.starts,
    )
    report = measure(options.artifact or newest(Path("models/en-de")), plan)
    print_table(report)
    if options.report:
        options.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    plan = Plan()
    parser = argparse.ArgumentParser(description="Compares the server with its engine alone.")
    parser.add_argument("--artifact", type=Path, help="what is served; the newest en-de")
    parser.add_argument("--rounds", type=int, default=plan.rounds, help="turns of each")
    parser.add_argument("--repeat", type=int, default=plan.repeat,
                        help="times the sentences are decoded in a round")  # fmt: skip
    parser.add_argument("--in-flight", type=int, default=plan.in_flight,
                        help="requests under way at once")  # fmt: skip
    parser.add_argument("--starts", type=int, default=plan.starts, help="servers started")
    parser.add_argument("--report", type=Path, help="file for all figures, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
