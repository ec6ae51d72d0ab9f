"""Latency at a given load: this server, what people run, and batch servers on other engines.

Every server is a separate process, and this one only calls them: over gRPC, or over HTTP if people
would write the server around an engine themselves. Requests come as a Poisson process, at rates
that are shares of what one server, the base, can do in the same run. All servers get the same
arrivals and take turns, round after round. Times count from the moment at which a request was due.
A batch returns all tokens at once, so only ours is also called as a stream; for the others the time
of the first token is the time of the answer.
"""

import tempfile
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from bench import base_size_copy
from bench.drivers.libretranslate import packages_of
from bench.drivers.server_process import (
    Server,
    ServerProcess,
    batch_server,
    plain_server,
    seqserve_server,
)
from bench.models import shipped_artifacts
from bench.requests import Run, Series, caller_of, check_answers, everyday
from bench.tables import Table
from seqserve.load import Answer, Caller
from seqserve.load.arrivals import draw_for, random_arrivals, within
from seqserve.load.http_caller import HttpCaller, HttpForm
from seqserve.load.loops import call, closed_loop, open_loop
from seqserve_server.artifact.manifest import Manifest

T = TypeVar("T")

# Enough that a full batch runs on each core while another one fills.
_IN_FLIGHT = 128
_FORM = HttpForm(path="/translate", text_field="q")
_BATCH_SERVERS = {
    "CTranslate2 int8": ("ctranslate2", "--precision", "int8"),
    "CTranslate2 fp32": ("ctranslate2", "--precision", "float32"),
    "torch fp32": ("torch",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and for how long."""

    base: str = "CTranslate2 int8"
    """Name of the server that rates are measured by."""
    peers: tuple[str, ...] = ("CTranslate2 int8", "CTranslate2 fp32", "torch fp32")
    """Names of the batch servers."""
    has_plain_server: bool = False
    """Whether FastAPI and CTranslate2, one call for each request, take part."""
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
    """Rates, ascending, as shares of the base's capacity."""
    rounds: int = 3
    seconds: float = 2.0
    """Of each server, at each rate, in each round."""
    slo_factor: float = 4.0
    """An answer is in time within this multiple of the base's unloaded median."""
    delay_ms: float = 5.0
    """How long a batch waits for more rows."""
    timeout_s: float = 2.0
    """When a caller gives up."""
    seed: int = 1


SMALL = Plan(has_plain_server=True, shares=(0.2, 0.5, 0.8, 1.0, 1.2), seconds=1.5)
"""For the shipped model."""
LARGE = Plan(
    peers=("CTranslate2 int8",), shares=(0.3, 0.5, 0.8, 1.0, 1.2, 1.4, 1.6), rounds=2, seconds=5.0
)
"""For its copy at Marian's base size."""


def measure(_rounds: int) -> dict[str, Any]:
    """Compares with the shipped model; the rounds are the plan's."""
    integers, _ = shipped_artifacts()
    return _measure(integers, integers, SMALL)


def measure_large(_rounds: int) -> dict[str, Any]:
    """Compares with its copy at Marian's base size, as :func:`measure` does."""
    _, floats = shipped_artifacts()
    with tempfile.TemporaryDirectory() as folder:
        copies = base_size_copy.write(floats, Path(folder))
        return _measure(copies["int8"], copies["fp32"], LARGE)


def _measure(artifact: Path, weights: Path, plan: Plan) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder, shared = Path(place), ("--artifact", weights)
        servers = [seqserve_server(artifact, folder)]
        for name in plan.peers:
            arguments = (*_BATCH_SERVERS[name], *shared)
            servers.append(batch_server(name, *arguments, delay_ms=plan.delay_ms))
        if plan.has_plain_server:
            servers.append(plain_server(packages_of(weights, folder)))
        series = take_turns(servers, everyday(), plan, folder)
        return report_of(Manifest.read(artifact).label, series, plan)


def take_turns(
    servers: Sequence[Server], sentences: Sequence[str], plan: Plan, logs: Path
) -> list[Series]:
    """Starts servers and measures them in turn; the first, ours, also with streams."""
    with ExitStack() as stack:
        running = [
            (server, stack.enter_context(ServerProcess(server, logs / f"{server.name}.log")))
            for server in servers
        ]
        series: list[Series] = uvloop.run(_measured(running, sentences, plan))
        return series


async def _measured(
    servers: Sequence[tuple[Server, ServerProcess]], sentences: Sequence[str], plan: Plan
) -> list[Series]:
    async with AsyncExitStack() as stack:
        callers: list[tuple[Series, Caller]] = []
        for server, process in servers:
            for streamed in (False,) if callers else (False, True):
                caller: Caller = caller_of(process.address, streamed=streamed)
                if server.is_http:
                    caller = HttpCaller(process.address, _FORM)
                await stack.enter_async_context(caller)
                callers.append((Series(server.name + " streamed" * streamed), caller))
        for _, caller in callers:
            # Unmeasured: allocations and compilations of the first use.
            await closed_loop(caller, sentences, _IN_FLIGHT)
        await _closed_rounds(callers, sentences, plan)
        series = [series for series, _ in callers]
        await _open_rounds(callers, sentences, plan, _base(series, plan).capacity)
        return series


async def _closed_rounds(
    callers: Sequence[tuple[Series, Caller]], sentences: Sequence[str], plan: Plan
) -> None:
    for round_ in range(plan.rounds):
        for series, caller in in_turn(callers, round_):
            series.unloaded.append(await _closed_run(caller, sentences, 1, plan))
            series.full.append(await _closed_run(caller, sentences, _IN_FLIGHT, plan))


async def _closed_run(caller: Caller, sentences: Sequence[str], in_flight: int, plan: Plan) -> Run:
    sources = draw_for(sentences, plan.seconds, plan.seed)
    run = await _timed(closed_loop(caller, sources, in_flight), plan)
    check_answers(run.answers)
    return run


async def _open_rounds(
    callers: Sequence[tuple[Series, Caller]],
    sentences: Sequence[str],
    plan: Plan,
    capacity_per_s: float,
) -> None:
    for round_ in range(plan.rounds):
        for share in plan.shares:
            seed = f"{plan.seed} {round_} {share}"
            drawn = random_arrivals(share * capacity_per_s, sentences, seed)
            arrivals = [*within(drawn, seconds=plan.seconds)]
            for series, caller in in_turn(callers, round_):
                run = await _timed(open_loop(caller, arrivals, plan.timeout_s), plan)
                # A batch without waiting callers still runs, and must not slow the next run.
                await call(caller, sentences[0], time.perf_counter(), 0.0)
                series.points.setdefault(share, []).append(run)


async def _timed(load: Coroutine[Any, Any, list[Answer]], plan: Plan) -> Run:
    began_s, cpu_s = time.perf_counter(), time.process_time()
    answers = await load
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - began_s
    return Run(answers, plan.seconds, cpu_s / wall_s)


def in_turn(servers: Sequence[T], round_: int) -> list[T]:
    """Lets another one begin each round, so that none always comes after the same."""
    first = round_ % len(servers)
    return [*servers[first:], *servers[:first]]


def _base(series: Sequence[Series], plan: Plan) -> Series:
    return next(one for one in series if one.name == plan.base)


def report_of(model: str, series: Sequence[Series], plan: Plan) -> dict[str, Any]:
    """Computes what :func:`measure` returns, from all measurements of a model."""
    base = _base(series, plan)
    slo_s = plan.slo_factor * base.unloaded_s
    return {
        "model": model,
        "plan": asdict(plan),
        "base": plan.base,
        "capacity_per_s": base.capacity,
        "slo_ms": 1e3 * slo_s,
        "peers": [one.figures(base.capacity, slo_s) for one in series],
    }


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out the result of :func:`measure`: latency by rate, then the highest rates."""
    return [_latencies(report), _rates(report)]


def _latencies(report: dict[str, Any]) -> Table:
    plan, rows = report["plan"], []
    for peer in report["peers"]:
        points = peer["points"]
        rows.append([peer["name"], *(_p50_p99(point["total_ms"]) for point in points)])
        if peer["name"].endswith("streamed"):
            first = (_p50_p99(point["first_ms"]) for point in points)
            rows.append(["first token of a stream", *first])
        if any(point["errors"] for point in points):
            errors = (f"{sum(point['errors'].values()):,}" for point in points)
            rows.append([f"{peer['name']}, failed requests", *errors])
    points = [point for peer in report["peers"] for point in peer["points"]]
    late_ms = max(point["generator_late_ms"]["p99"] for point in points)
    busy = max(point["generator_cpu_share"] for point in points)
    return Table(
        [
            f"load, as a share of the {report['capacity_per_s']:,.0f} requests a second that"
            f" {report['base']} can answer; p50, p99",
            *(f"{share:g}" for share in plan["shares"]),
        ],
        rows,
        f"{report['model']}: Poisson arrivals, {plan['rounds']} rounds of {plan['seconds']:g} s a"
        " point, medians of rounds. —: more failed than the percentile leaves out. The load"
        f" generator was {late_ms:.1f} ms late at most (p99 of a point) and took {busy:.0%} of a"
        " core.",
    )


def _rates(report: dict[str, Any]) -> Table:
    within = f"p99 within {report['slo_ms']:.1f} ms"
    return Table(
        ["requests a second", "one alone", "at most", f"with {within}", "the same, first token"],
        [
            [
                peer["name"],
                _time(peer["unloaded_ms"]),
                f"{peer['capacity_per_s']:,.0f}",
                _rate(peer["highest_rate"]),
                _rate(peer["highest_rate_first"]),
            ]
            for peer in report["peers"]
        ],
        f"The limit of p99 is {report['plan']['slo_factor']:g} times the median of {report['base']}"
        " with one request at a time. The rate at which p99 first exceeds it is interpolated"
        " between the measured rates.",
    )


def _p50_p99(quantiles: dict[str, float | None]) -> str:
    return f"{_time(quantiles['p50'])}, {_time(quantiles['p99'])}"


def _time(value_ms: float | None) -> str:
    if value_ms is None:
        return "—"
    return f"{value_ms:.1f} ms" if value_ms < 10 else f"{value_ms:,.0f} ms"


def _rate(rate: dict[str, Any]) -> str:
    if not rate["per_s"]:
        return "none measured"
    return f"{'at least ' * rate['is_bound']}{rate['per_s']:,.0f}"
