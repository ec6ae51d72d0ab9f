"""HTTP: ``seqserve gateway``, LibreTranslate and a plain server, on the same weights.

Every server is a separate process and gets the same sentences over the same route,
``/translate``; they take turns, round after round. The callers are in this process and share the
cores with them. Ours is two processes, the server and its gateway; the others have the weights as
CTranslate2 at int8.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import uvloop

from bench import base_size_copy
from bench.drivers.libretranslate import packages_of
from bench.drivers.server_process import (
    Server,
    ServerProcess,
    libretranslate_server,
    plain_server,
    seqserve_server,
)
from bench.models import amend, shipped_artifacts
from bench.requests import caller_of, everyday
from bench.scenarios.online import in_turn
from bench.tables import Table, shown, spread, spread_of_ratios
from seqserve.load import percentile
from seqserve.load.http_caller import HttpConnection
from seqserve.load.loops import call
from seqserve_server.artifact.manifest import Manifest

OURS, LIBRE, PLAIN = "seqserve gateway", "LibreTranslate", "FastAPI + CTranslate2"
_MB = 1e6
# The others refuse nobody.
_GATEWAY = ("--port", "0", "--timeout-s", "300")
_PAIR = {"source": "en", "target": "de", "format": "text"}
Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and for how long."""

    beam_sizes: tuple[int, ...] = (1, 4)
    """Four is LibreTranslate's default."""
    rounds: int = 5
    callers: int = 16
    """Single callers, with a sentence at a time each."""
    callers_s: float = 3.0
    jobs: int = 3
    """Clients that send one array after another, while others call interactively."""
    job_size: int = 60
    """Sentences of an array."""
    interactive: int = 4
    mixed_s: float = 6.0
    lone_calls: int = 100
    """Of each kind, in each round."""


@dataclass(frozen=True, slots=True)
class _Running:
    address: str
    processes: Sequence[ServerProcess]


def measure(rounds: int) -> Iterator[dict[str, Any]]:
    """Runs the comparison with the shipped model, and with its copy at Marian's base size.

    Yields:
        After each size of a beam all figures so far: of each server by round, and their resident
        memory; what HTTP adds to a call alone. The same of the copy is in ``base``.
    """
    plan = Plan(rounds=rounds)
    integers, floats = shipped_artifacts()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for report in _reports(integers, integers, folder / "shipped", plan):
            yield report
        copies = base_size_copy.write(floats, folder)
        base_size_copy.give_languages(integers, copies["int8"])
        for base in _reports(copies["int8"], copies["fp32"], folder / "base", plan):
            yield report | {"base": base}


def _reports(artifact: Path, weights: Path, folder: Path, plan: Plan) -> Iterator[dict[str, Any]]:
    folder.mkdir()
    report: dict[str, Any] = {"model": Manifest.read(artifact).label, "plan": asdict(plan)}
    packages = packages_of(weights, folder)
    for beam_size in plan.beam_sizes:
        with _started(artifact, packages, beam_size, folder) as running:
            report[f"beam_{beam_size}"] = uvloop.run(_measured(running, plan))
        yield report


@contextmanager
def _started(
    artifact: Path, packages: Path, beam_size: int, folder: Path
) -> Iterator[dict[str, _Running]]:
    place = folder / f"beam_{beam_size}"
    place.mkdir()
    server = seqserve_server(artifact, place)
    [copy] = (place / "models").glob("*/*")
    amend(copy, generation={**Manifest.read(copy).generation, "beam_size": beam_size})
    with ExitStack() as stack:

        def start(each: Server) -> ServerProcess:
            return stack.enter_context(ServerProcess(each, place / f"{each.name}.log"))

        ours = start(server)
        gateway = start(Server(OURS, "seqserve", ["gateway", "--target", ours.address, *_GATEWAY]))
        libre = start(libretranslate_server(packages, beam_size))
        plain = start(plain_server(packages, beam_size))
        yield {
            OURS: _Running(gateway.address, [ours, gateway]),
            LIBRE: _Running(libre.address, [libre]),
            PLAIN: _Running(plain.address, [plain]),
        }


async def _measured(running: dict[str, _Running], plan: Plan) -> dict[str, Any]:
    texts = {name: await _array(each.address, everyday()) for name, each in running.items()}
    rounds: dict[str, list[Figures]] = {name: [] for name in running}
    lone: list[Figures] = []
    for round_ in range(plan.rounds):
        lone.append(await _lone(running[OURS], plan))
        for name, each in in_turn(list(running.items()), round_):
            rounds[name].append(await _round(each.address, plan))
    return {
        "rounds": rounds,
        "lone": lone,
        "resident_mb": {
            name: sum(process.resident_bytes() for process in each.processes) / _MB
            for name, each in running.items()
        },
        "same_as_ours": {
            name: statistics.fmean(map(str.__eq__, texts[OURS], theirs))
            for name, theirs in texts.items()
        },
    }


async def _round(address: str, plan: Plan) -> Figures:
    sentences = everyday()
    began_s = time.perf_counter()
    await _array(address, sentences)
    array_per_s = len(sentences) / (time.perf_counter() - began_s)
    times_s = await _closed(address, plan.callers, plan.callers_s)
    jobs = asyncio.create_task(_jobs(address, plan))
    interactive_s = await _closed(address, plan.interactive, plan.mixed_s)
    return {
        "array_per_s": array_per_s,
        "requests_per_s": len(times_s) / plan.callers_s,
        "p50_ms": 1e3 * statistics.median(times_s),
        "jobs_per_s": await jobs,
        "interactive_p50_ms": 1e3 * statistics.median(interactive_s),
        "interactive_p99_ms": 1e3 * percentile(interactive_s, 0.99),
    }


async def _array(address: str, sentences: Sequence[str]) -> list[str]:
    async with HttpConnection(address) as caller:
        answer = await caller.post("/translate", {"q": list(sentences), **_PAIR})
    texts: list[str] = answer["translatedText"]
    assert len(texts) == len(sentences)
    return texts


async def _posted(
    address: str, clients: int, seconds: float, texts: Iterable[str | list[str]]
) -> list[tuple[float, float]]:
    """Lets clients post one text or array after another; returns when each began and ended."""
    end_s = time.perf_counter() + seconds
    times_s: list[tuple[float, float]] = []
    waiting = iter(texts)

    async def send() -> None:
        async with HttpConnection(address) as caller:
            while (began_s := time.perf_counter()) < end_s:
                await caller.post("/translate", {"q": next(waiting), **_PAIR})
                times_s.append((began_s, time.perf_counter()))

    await asyncio.gather(*(send() for _ in range(clients)))
    return times_s


async def _closed(address: str, callers: int, seconds: float) -> list[float]:
    times_s = await _posted(address, callers, seconds, cycle(everyday()))
    return [ended_s - began_s for began_s, ended_s in times_s]


async def _jobs(address: str, plan: Plan) -> float:
    """Sends arrays, one after another from each client; returns sentences a second.

    The last array of a client counts in proportion to its share within the time.
    """
    end_s = time.perf_counter() + plan.mixed_s
    arrays = repeat(everyday()[: plan.job_size])
    times_s = await _posted(address, plan.jobs, plan.mixed_s, arrays)
    shares = (min(1.0, (end_s - began_s) / (ended_s - began_s)) for began_s, ended_s in times_s)
    return plan.job_size * sum(shares) / plan.mixed_s


async def _lone(ours: _Running, plan: Plan) -> Figures:
    server = ours.processes[0]
    async with AsyncExitStack() as stack:
        grpc = await stack.enter_async_context(caller_of(server.address))
        http = await stack.enter_async_context(HttpConnection(ours.address))

        options = {"return_scores": False}
        ways: dict[str, Callable[[str], Awaitable[Any]]] = {
            "grpc_ms": lambda text: call(grpc, text, time.perf_counter(), 0.0),
            "generate_ms": lambda text: http.post(
                "/v1/generate", {"source": text, "options": options}
            ),
            "translate_ms": lambda text: http.post("/translate", {"q": text, **_PAIR}),
        }
        times_s: dict[str, list[float]] = {name: [] for name in ways}
        for text in everyday()[: plan.lone_calls]:
            for name, way in ways.items():
                began_s = time.perf_counter()
                await way(text)
                times_s[name].append(time.perf_counter() - began_s)
    return {name: 1e3 * statistics.median(each) for name, each in times_s.items()}


_ROWS = {
    "array_per_s": "an array of 120: sentences/s",
    "requests_per_s": "16 callers: requests/s",
    "p50_ms": "16 callers: p50, ms",
    "jobs_per_s": "3 jobs of arrays beside 4 callers: sentences/s of the jobs",
    "interactive_p50_ms": "the 4 callers beside them: p50, ms",
    "interactive_p99_ms": "the 4 callers beside them: p99, ms",
}


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure` returned: a table for each beam, and what HTTP costs."""
    sizes = report["plan"]["beam_sizes"]
    parts = [report, report["base"]] if "base" in report else [report]
    known = [(part, size) for part in parts for size in sizes if f"beam_{size}" in part]
    return [*(_table(part, size) for part, size in known), _cost(report, sizes[0])]


def _table(report: dict[str, Any], beam_size: int) -> Table:
    part = report[f"beam_{beam_size}"]
    rounds: dict[str, list[Figures]] = part["rounds"]
    rows = []
    for key, label in _ROWS.items():
        values = {name: [figures[key] for figures in each] for name, each in rounds.items()}
        medians = [f"{statistics.median(values[name]):,.0f}" for name in rounds]
        ratios = [
            shown(spread_of_ratios(values[OURS], values[name])) for name in rounds if name != OURS
        ]
        rows.append([label, *medians, *ratios])
    memory = [f"{part['resident_mb'][name]:,.0f}" for name in rounds]
    rows.append(["resident memory, MB", *memory, "", ""])
    same = [f"{part['same_as_ours'][name]:.0%}" for name in rounds]
    rows.append(["same texts as ours", *same, "", ""])
    way = "greedy" if beam_size == 1 else f"beam of {beam_size}"
    others = [f"**ours / {name}**" for name in rounds if name != OURS]
    return Table([f"{report['model']}, {way}", *rounds, *others], rows)


def _cost(report: dict[str, Any], beam_size: int) -> Table:
    lone: list[Figures] = report[f"beam_{beam_size}"]["lone"]
    rows = []
    for key, label in (
        ("grpc_ms", "`Generate`, gRPC"),
        ("generate_ms", "`POST /v1/generate`"),
        ("translate_ms", "`POST /translate`"),
    ):
        added = [figures[key] - figures["grpc_ms"] for figures in lone]
        median = statistics.median(figures[key] for figures in lone)
        shown_added = "" if key == "grpc_ms" else shown(spread(added))
        rows.append([label, f"{median:.2f}", shown_added])
    return Table(["one call at a time, ms", "p50", "more than gRPC"], rows)
