"""Compares the server with its engine alone: tokens per second and per CPU second, start, memory.

The engine alone and the server with its callers take turns on the same sentences in the same order,
with the same number in flight. The caller, a process of its own, shares the cores with the server;
tokens per CPU second of the server leave it out, as if it ran on another machine.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.artifacts import repository_of
from bench.comparison import shown, spread
from bench.engine import EngineProcess, EngineRun
from bench.load import Caller, closed_loop
from bench.process import PATIENT, ServerProcess
from bench.provenance import print_signature
from bench.sentences import everyday
from bench.server_run import ServerRun, check, serve_all, throughput
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
        check(await closed_loop(caller, texts, plan.in_flight))


async def _rounds(
    engine: EngineProcess, server: ServerProcess, texts: Sequence[str], plan: Plan
) -> list[tuple[EngineRun, ServerRun]]:
    rounds: list[tuple[EngineRun, ServerRun]] = []
    async with Caller(server.address) as caller:
        # Round 0 only warms both up.
        for round_ in range(plan.rounds + 1):
            alone = engine.decode()
            served = await serve_all(server, caller, texts, plan.in_flight)
            if alone.tokens != served.tokens:
                raise SystemExit(
                    f"{alone.tokens} tokens alone, {served.tokens} served: not comparable"
                )
            if round_:
                rounds.append((alone, served))
    return rounds


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
        print(f"  served / alone, {name.replace('_', ' '):20}{shown(ratio[name])}")
    print(
        f"  CPU ms a request of the event loop {server['event_loop_cpu_ms_per_request']:.2f},"
        f" of the caller {server['client_cpu_ms_per_request']:.2f}\n"
        f"  outside ONNX Runtime {server['step_share_outside_runtime']:.1%} of the time in steps,"
        f" {server['cpu_share_outside_runtime']:.1%} of the server's CPU time (estimated)\n"
    )
    start = report["start"]
    print(f"  start to ready  {_line(start['ready_s'], 2)} s\n"
          f"  resident        {_line(start['ready_mb'], 0)} MB at the start,"
          f" {_line(start['loaded_mb'], 0)} MB after load")  # fmt: skip
    print_signature()


def _line(spread: dict[str, float], digits: int) -> str:
    median, low, high = (f"{spread[name]:.{digits}f}" for name in ("median", "low", "high"))
    return f"{median} ({low}-{high})"
