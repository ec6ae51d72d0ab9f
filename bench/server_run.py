"""Measures one decoding of all sources through gRPC, and compares it with the engine alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.comparison import spread
from bench.engine import EngineRun
from bench.latency import Answer
from bench.load import Caller, closed_loop
from bench.process import ServerProcess


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


async def serve_all(
    server: ServerProcess, caller: Caller, texts: Sequence[str], in_flight: int
) -> ServerRun:
    """Sends all texts, ``in_flight`` at a time, and reads the server's clocks before and after."""
    before, cpu_s = _step_seconds(server), _cpu_seconds(server)
    client_cpu_s, began_s = time.process_time(), time.perf_counter()
    answers = await closed_loop(caller, texts, in_flight)
    wall_s, client_cpu_s = time.perf_counter() - began_s, time.process_time() - client_cpu_s
    spent_s = [now - then for now, then in zip(_cpu_seconds(server), cpu_s, strict=True)]
    after = _step_seconds(server)
    check(answers)
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


def check(answers: Sequence[Answer]) -> None:
    """Ends the benchmark if a call failed.

    Raises:
        SystemExit: A call failed.
    """
    errors = {answer.error for answer in answers if answer.error}
    if errors:
        raise SystemExit(f"calls failed: {', '.join(sorted(errors))}")


def throughput(rounds: Sequence[tuple[EngineRun, ServerRun]], requests: int) -> dict[str, Any]:
    """Computes medians over the rounds, and the ratios within each round."""
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
