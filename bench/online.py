"""Compares latency at a given load: this server and batch servers on other engines.

Every server is a process of its own, called over gRPC from this one, which only calls. Requests
come as a Poisson process, at rates that are shares of what CTranslate2 at int8 can do in the same
run. All peers get the same arrivals and take turns, round after round. Times count from the moment
at which a request was due. A batch returns all tokens at once, so only ours is also called as a
stream; for the others the time of the first token is that of the whole answer.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.arrivals import poisson
from bench.artifacts import repository_of
from bench.latency import Answer
from bench.load import Caller, closed_loop, for_seconds, open_loop
from bench.process import PATIENT, ServerProcess
from bench.provenance import print_signature
from bench.sentences import everyday
from bench.series import Run, Series, capacity, figures, unloaded_s
from seqserve_server.contract.manifest import Manifest

# Enough that a full batch runs on each core while another one fills.
_IN_FLIGHT = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and for how long."""

    base: str = "CTranslate2 int8"
    """Name of the server that rates are measured by."""
    peers: tuple[str, ...] = ("CTranslate2 int8", "CTranslate2 fp32", "torch fp32")
    """Names of the batch servers."""
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
    """Rates, ascending, as shares of the base's capacity."""
    rounds: int = 3
    seconds: float = 2.0
    """Of each peer, at each rate, in each round."""
    slo_factor: float = 4.0
    """An answer is in time within this multiple of the base's unloaded median."""
    delay_ms: float = 5.0
    """How long a batch waits for more rows."""
    timeout_s: float = 2.0
    """When a caller gives up."""
    seed: int = 1


def measure(artifact: Path, weights: Path, plan: Plan) -> dict[str, Any]:
    """Runs the comparison.

    Args:
        artifact: What our server serves.
        weights: The fp32 artifact whose weights the others get.
        plan: What is measured.

    Returns:
        All figures, in milliseconds and per second; None stands for a time that is infinite, since
        too many requests failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        servers = _servers(artifact, weights, plan, Path(folder))
        series = take_turns(servers, everyday(), plan, Path(folder))
        return report_of(Manifest.read(artifact).label, series, plan)


def take_turns(
    servers: Sequence[tuple[str, str, list[str]]], sentences: Sequence[str], plan: Plan, logs: Path
) -> list[Series]:
    """Starts servers, and measures them in turn.

    Args:
        servers: Name, module and arguments of each; ours first, which is called as a stream too.
        sentences: What they are sent.
        plan: What is measured.
        logs: Folder for what they write.
    """
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(ServerProcess(module, arguments, logs / f"{name}.log"))
            for name, module, arguments in servers
        }
        series: list[Series] = uvloop.run(_measured(running, sentences, plan))
        return series


def _servers(
    artifact: Path, weights: Path, plan: Plan, folder: Path
) -> list[tuple[str, str, list[str]]]:
    """Gives name, module and arguments of every server; ours comes first."""
    shared = ["--artifact", str(weights), "--delay-ms", str(plan.delay_ms), "--engine"]
    engines = {
        "CTranslate2 int8": ["ctranslate2", "--precision", "int8"],
        "CTranslate2 fp32": ["ctranslate2", "--precision", "float32"],
        "torch fp32": ["torch"],
    }
    batchers = [(name, "bench.batcher", [*shared, *engines[name]]) for name in plan.peers]
    return [our_server(artifact, folder), *batchers]


def our_server(artifact: Path, folder: Path) -> tuple[str, str, list[str]]:
    """Gives name, module and arguments of our server of an artifact; ``folder`` is for its copy."""
    repository = str(repository_of(artifact, folder / "models"))
    ports = ["--port", "0", "--metrics-port", "0"]
    arguments = ["serve", "--model-repository", repository, *ports, *PATIENT]
    return f"seqserve {Manifest.read(artifact).precision}", "seqserve", arguments


async def _measured(
    servers: dict[str, ServerProcess], sentences: Sequence[str], plan: Plan
) -> list[Series]:
    async with AsyncExitStack() as stack:
        series: list[Series] = []
        for name, server in servers.items():
            modes = (False, True) if not series else (False,)
            for streamed in modes:
                caller = Caller(server.address, streamed=streamed)
                await stack.enter_async_context(caller)
                series.append(Series(name + " streamed" * streamed, caller))
        for one in series:
            # Unmeasured: what is allocated or compiled at first use.
            await closed_loop(one.caller, sentences, _IN_FLIGHT)
        await _closed_rounds(series, sentences, plan)
        await _open_rounds(series, sentences, plan, capacity(_named(series, plan.base)))
    return series


async def _closed_rounds(series: Sequence[Series], sentences: Sequence[str], plan: Plan) -> None:
    for round_ in range(plan.rounds):
        for one in in_turn(series, round_):
            one.unloaded.append(await _closed_run(one.caller, sentences, 1, plan))
            one.full.append(await _closed_run(one.caller, sentences, _IN_FLIGHT, plan))


async def _closed_run(caller: Caller, sentences: Sequence[str], in_flight: int, plan: Plan) -> Run:
    sources = for_seconds(sentences, plan.seconds, plan.seed)
    run = await _timed(closed_loop(caller, sources, in_flight), plan)
    if failed := {answer.error for answer in run.answers if answer.error}:
        # Nothing here is more than a server can bear, and the rates depend on it.
        raise SystemExit(f"calls failed: {', '.join(sorted(failed))}")
    return run


async def _open_rounds(
    series: Sequence[Series], sentences: Sequence[str], plan: Plan, capacity_per_s: float
) -> None:
    for round_ in range(plan.rounds):
        for share in plan.shares:
            seed = f"{plan.seed} {round_} {share}"
            arrivals = poisson(share * capacity_per_s, plan.seconds, sentences, seed)
            for one in in_turn(series, round_):
                run = await _timed(open_loop(one.caller, arrivals, plan.timeout_s), plan)
                one.points.setdefault(share, []).append(run)


async def _timed(load: Coroutine[Any, Any, list[Answer]], plan: Plan) -> Run:
    began_s, cpu_s = time.perf_counter(), time.process_time()
    answers = await load
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - began_s
    return Run(answers, plan.seconds, cpu_s / wall_s)


def in_turn(series: Sequence[Series], round_: int) -> list[Series]:
    """Lets another one begin each round, so that none always comes after the same."""
    first = round_ % len(series)
    return [*series[first:], *series[:first]]


def _named(series: Sequence[Series], name: str) -> Series:
    return next(one for one in series if one.name == name)


def report_of(model: str, series: Sequence[Series], plan: Plan) -> dict[str, Any]:
    """Gives what :func:`measure` gives, from all that was measured of a model."""
    base = _named(series, plan.base)
    slo_s = plan.slo_factor * unloaded_s(base)
    return {
        "model": model,
        "plan": asdict(plan),
        "base": plan.base,
        "capacity_per_s": capacity(base),
        "slo_ms": 1e3 * slo_s,
        "peers": [figures(one, capacity(base), slo_s) for one in series],
    }


def print_table(report: dict[str, Any]) -> None:
    """Prints what :func:`measure` gave."""
    plan = report["plan"]
    print(
        f"{report['model']}: Poisson arrivals, {plan['rounds']} rounds of {plan['seconds']} s a"
        f" point, medians of rounds.\nIn time: within {report['slo_ms']:.1f} ms,"
        f" {plan['slo_factor']:g} times the median of {report['base']} with one request at a"
        " time.\n"
        "First token: the whole answer, where it is not streamed. —: more failed than the"
        " percentile leaves out. Milliseconds.\n"
    )
    for index, share in enumerate(plan["shares"]):
        rate = share * report["capacity_per_s"]
        print(f"{rate:,.0f} requests/s, {share:g} of {report['base']}'s capacity")
        print(
            f"  {'':24}{'p50':>8}{'p90':>8}{'p99':>8}{'(low - high)':>18}{'first p50':>12}"
            f"{'p99':>8}{'served/s':>10}{'in time':>9}{'good/s':>8}  errors"
        )
        for peer in report["peers"]:
            print(_line(peer["name"], peer["points"][index]))
        print()
    print(f"  {'':24}{'unloaded':>10}{'capacity':>10}   highest rate with p99 in time")
    for peer in report["peers"]:
        whole, first = _rate(peer["highest_rate"]), _rate(peer["highest_rate_first"])
        print(
            f"  {peer['name']:24}{peer['unloaded_ms']:7.1f} ms{peer['capacity_per_s']:8,.0f}/s"
            f"   {whole}" + (f"; of the first token {first}" if first != whole else "")
        )
    print("  (where p99 first leaves the limit, linear between the rates measured)")
    points = [point for peer in report["peers"] for point in peer["points"]]
    late_ms = max(point["generator_late_ms"]["p99"] for point in points)
    busy = max(point["generator_cpu_share"] for point in points)
    print(
        f"  The load generator was {late_ms:.1f} ms late at most (p99 of a point) and took"
        f" {busy:.0%} of a core."
    )
    print_signature()


def _line(name: str, point: dict[str, Any]) -> str:
    total, first = point["total_ms"], point["first_ms"]
    rounds = [math.inf if value is None else value for value in point["total_p99_ms_rounds"]]
    spread = f"({_time(min(rounds))} - {_time(max(rounds))})"
    return (
        f"  {name:24}{_time(total['p50']):>8}{_time(total['p90']):>8}{_time(total['p99']):>8}"
        f"{spread:>18}{_time(first['p50']):>12}{_time(first['p99']):>8}"
        f"{point['served_per_s']:10,.0f}{point['within_slo']:9.1%}{point['goodput_per_s']:8,.0f}"
        f"  {', '.join(f'{count} {error}' for error, count in point['errors'].items())}"
    )


def _time(value_ms: float | None) -> str:
    if value_ms is None or math.isinf(value_ms):
        return "—"
    return f"{value_ms:,.1f}" if value_ms < 100 else f"{value_ms:,.0f}"


def _rate(rate: dict[str, Any]) -> str:
    if not rate["per_s"]:
        return "none measured"
    return f"{'at least ' * rate['is_bound']}{rate['per_s']:,.0f}/s"
