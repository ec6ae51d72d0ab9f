"""What the server adds to its engine: tokens per second and per CPU second, start, memory.

The engine alone and the server with its callers take turns on the same sentences in the same order,
with the same number in flight. The caller, a separate process, shares the cores with the server;
tokens per CPU second of the server leave it out, as if it ran on another machine.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from bench.drivers.seqserve import EngineProcess, LoopRun
from bench.drivers.server_process import Server, ServerProcess, seqserve_server
from bench.models import shipped_artifacts
from bench.requests import caller_of, check_answers, everyday
from bench.tables import Table, shown, spread, spread_of_ratios
from seqserve.load.grpc_callers import GrpcCaller
from seqserve.load.loops import closed_loop
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.text.tokenizer import Tokenizer

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

    @property
    def outside_share(self) -> float:
        """Estimates the share of the server's CPU time that is not in ONNX Runtime.

        None of the process that speaks gRPC is; the time of the others, which is the workers', is
        taken to be shared out as the time of their steps on the clock is.
        """
        workers_s = self.cpu_s - self.front_cpu_s
        return (self.front_cpu_s + workers_s * self.outside_s / self.step_s) / self.cpu_s


def measure(rounds: int) -> dict[str, Any]:
    """Runs the comparison.

    Returns:
        Medians over the rounds and the starts; spreads are median, low and high.
    """
    artifact, plan = shipped_artifacts()[0], Plan(rounds=rounds)
    manifest = Manifest.read(artifact)
    texts = everyday() * plan.repeat
    random.Random(plan.seed).shuffle(texts)
    tokenizer = Tokenizer.load(artifact / "tokenizer.json")
    sources = [tokenizer.encode(text) for text in texts]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command, log = seqserve_server(artifact, folder), folder / "log"
        starts = [_start(command, log, texts, plan) for _ in range(plan.starts)]
        with (
            EngineProcess(artifact, sources, plan.in_flight) as engine,
            ServerProcess(command, log) as server,
        ):
            runs = uvloop.run(_rounds(engine, server, texts, plan))
    return {
        "model": manifest.label,
        "precision": manifest.precision,
        "plan": asdict(plan),
        "requests": len(texts),
        **throughput(runs, len(texts)),
        "start": {
            name: spread([start[name] for start in starts])
            for name in ("ready_s", "ready_mb", "loaded_mb")
        },
    }


def _start(command: Server, log: Path, texts: Sequence[str], plan: Plan) -> dict[str, float]:
    with ServerProcess(command, log) as server:
        ready_mb = server.resident_bytes() / _MB
        uvloop.run(_load_once(server, texts[: 4 * plan.in_flight], plan))
        return {
            # From the start of the process until it serves; its files are in the system's cache.
            "ready_s": server.ready_after_s,
            "ready_mb": ready_mb,
            # All slots have been in use.
            "loaded_mb": server.resident_bytes() / _MB,
        }


async def _load_once(server: ServerProcess, texts: Sequence[str], plan: Plan) -> None:
    async with caller_of(server.address) as caller:
        check_answers(await closed_loop(caller, texts, plan.in_flight))


async def _rounds(
    engine: EngineProcess, server: ServerProcess, texts: Sequence[str], plan: Plan
) -> list[tuple[LoopRun, ServerRun]]:
    rounds: list[tuple[LoopRun, ServerRun]] = []
    async with caller_of(server.address) as caller:
        # Round 0 only warms both up.
        for round_ in range(plan.rounds + 1):
            alone = engine.decode()
            served = await _serve_all(server, caller, texts, plan.in_flight)
            if alone.tokens != served.tokens:
                raise SystemExit(
                    f"{alone.tokens} tokens alone, {served.tokens} served: not comparable"
                )
            if round_:
                rounds.append((alone, served))
    return rounds


async def _serve_all(
    server: ServerProcess, caller: GrpcCaller, texts: Sequence[str], in_flight: int
) -> ServerRun:
    steps_s, cpu_s = _step_seconds(server), _cpu_seconds(server)
    client_cpu_s, began_s = time.process_time(), time.perf_counter()
    answers = await closed_loop(caller, texts, in_flight)
    wall_s, client_cpu_s = time.perf_counter() - began_s, time.process_time() - client_cpu_s
    spent_s = [now - then for now, then in zip(_cpu_seconds(server), cpu_s, strict=True)]
    after_s = _step_seconds(server)
    check_answers(answers)
    return ServerRun(
        tokens=sum(answer.tokens for answer in answers),
        wall_s=wall_s,
        cpu_s=spent_s[0],
        front_cpu_s=spent_s[1],
        event_loop_cpu_s=spent_s[2],
        client_cpu_s=client_cpu_s,
        step_s=after_s[0] - steps_s[0],
        outside_s=after_s[1] - steps_s[1],
    )


def _step_seconds(server: ServerProcess) -> tuple[float, float]:
    return (
        server.counter("seqserve_step_seconds_total"),
        server.counter("seqserve_step_outside_runtime_seconds_total"),
    )


def _cpu_seconds(server: ServerProcess) -> tuple[float, float, float]:
    return server.cpu_s(), server.front_cpu_s(), server.main_thread_cpu_s()


R = TypeVar("R", LoopRun, ServerRun)


def _median(runs: Sequence[R], figure: Callable[[R], float]) -> float:
    return statistics.median(map(figure, runs))


def throughput(rounds: Sequence[tuple[LoopRun, ServerRun]], requests: int) -> dict[str, Any]:
    """Computes medians over the rounds, and the ratios within each round."""
    alone, served = [run for run, _ in rounds], [run for _, run in rounds]
    return {
        "engine": _rates(alone, requests),
        "server": {
            **_rates(served, requests),
            "event_loop_cpu_ms_per_request": _median(
                served, lambda run: 1e3 * run.event_loop_cpu_s / requests
            ),
            "client_cpu_ms_per_request": _median(
                served, lambda run: 1e3 * run.client_cpu_s / requests
            ),
            "step_share_outside_runtime": _median(served, lambda run: run.outside_s / run.step_s),
            "cpu_share_outside_runtime": _median(served, lambda run: run.outside_share),
        },
        "server_by_engine": {
            "tokens_per_s": spread_of_ratios(
                [run.wall_s for run in alone], [run.wall_s for run in served]
            ),
            "tokens_per_cpu_s": spread_of_ratios(
                [run.cpu_s for run in alone], [run.cpu_s for run in served]
            ),
        },
    }


def _rates(runs: Sequence[R], requests: int) -> dict[str, float]:
    return {
        "tokens_per_s": _median(runs, lambda run: run.tokens / run.wall_s),
        "tokens_per_cpu_s": _median(runs, lambda run: run.tokens / run.cpu_s),
        "cpu_ms_per_request": _median(runs, lambda run: 1e3 * run.cpu_s / requests),
        "cores_busy": _median(runs, lambda run: run.cpu_s / run.wall_s),
    }


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure` returned: throughput, then a start."""
    plan, server, ratio = report["plan"], report["server"], report["server_by_engine"]
    rows = [
        [
            name,
            f"{rates['tokens_per_s']:,.0f}",
            f"{rates['tokens_per_cpu_s']:,.0f}",
            f"{rates['cpu_ms_per_request']:.2f}",
            f"{rates['cores_busy']:.2f}",
        ]
        for name, rates in (("engine alone", report["engine"]), ("through gRPC", server))
    ]
    ratios = (shown(ratio[name]) for name in ("tokens_per_s", "tokens_per_cpu_s"))
    rows.append(["**through gRPC / alone**", *ratios, "", ""])
    speeds = Table(
        [
            f"{report['model']}, {report['precision']}; {plan['in_flight']} requests in flight",
            *("tokens/s", "tokens/CPU s", "CPU ms a request", "cores busy"),
        ],
        rows,
        "CPU ms a request of the event loop"
        f" {server['event_loop_cpu_ms_per_request']:.2f}, of the caller"
        f" {server['client_cpu_ms_per_request']:.2f}. Outside ONNX Runtime:"
        f" {server['step_share_outside_runtime']:.1%} of the time in steps,"
        f" {server['cpu_share_outside_runtime']:.1%} of the server's CPU time (estimated).",
    )
    start = report["start"]
    memory = (f"{shown(start[name], 0)} MB" for name in ("ready_mb", "loaded_mb"))
    cells = ["the same server", f"{shown(start['ready_s'])} s", *memory]
    return [speeds, Table(["a start", "ready after", "memory then", "memory after load"], [cells])]
