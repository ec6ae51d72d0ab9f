"""How throughput grows with cores: the engine's processes alone, and in a server.

Workers of one process share an interpreter. While one of them is outside ONNX Runtime, the others
that need to be there wait. So the share of a step outside it bounds how many workers a process can
keep busy, and tells from few cores what becomes of many. A server has the same processes, and
shares the machine with its fronts and the callers.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench import base_size_copy
from bench.drivers.seqserve import EngineProcess, LoopRun
from bench.drivers.server_process import Server, ServerProcess, seqserve_server
from bench.models import shipped_artifacts
from bench.requests import PAIRS, mixed
from bench.scenarios import fronts
from bench.served import Served, served_table
from bench.tables import Table, shown, spread_of_ratios
from seqserve.processes import available_cores
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.engine.runtime import doubling
from seqserve_server.front.config import ServeOptions
from seqserve_server.text.tokenizer import Tokenizer

_ROWS = 32
_TRIED = 120
_CALLERS_OF_A_ROW = 2
"""So that a request waits for each row that is free."""


class Layout(NamedTuple):
    """How cores are shared out: one worker for each of them."""

    processes: int
    workers: int
    """Of each process."""

    @property
    def rows(self) -> int:
        """Sentences that run at once."""
        slots = ServeOptions(workers=self.workers).slot_count()
        return self.processes * min(_ROWS * self.workers, slots)

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Reads ``2,8``, two processes of eight workers."""
        processes, workers = map(int, text.split(","))
        return cls(processes, workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(fronts.Plan):
    """What is measured; if empty, ``fronts`` is a server's default, ``callers`` two for a row."""

    layouts: Sequence[Layout] = ()
    """If empty, all of :func:`layouts`; one core is always among them."""
    folder: Path = Path("build/bench/scaling")
    """Keeps the copy of the model for a later run."""


def layouts(cores: int) -> list[Layout]:
    """Lists one core, then twice as many each time up to all, in one process and in one each."""
    sizes = doubling(cores)
    return list(dict.fromkeys(pair for n in sizes for pair in (Layout(1, n), Layout(n, 1))))


def measure(plan: Plan) -> Iterator[dict[str, Any]]:
    """Measures the shipped model; yields after each round."""
    return measure_artifact(shipped_artifacts()[0], plan)


def measure_large(plan: Plan) -> Iterator[dict[str, Any]]:
    """Measures its copy at Marian's base size, as :func:`measure` does."""
    place = plan.folder / base_size_copy.INT8 / "1"
    if not place.exists():
        base_size_copy.write(shipped_artifacts()[1], plan.folder, has_floats=False)
    return measure_artifact(place, plan)


@dataclass(slots=True)
class _Case:
    """A layout with its engines, its servers, and what they did in each round."""

    layout: Layout
    team: Sequence[EngineProcess]
    served: Served
    alone: list[LoopRun] = field(default_factory=list)

    def decode(self) -> None:
        began_s = time.perf_counter()
        with ThreadPoolExecutor(len(self.team)) as threads:
            runs: list[LoopRun] = list(threads.map(EngineProcess.decode, self.team))
        total = LoopRun(
            sources=sum(run.sources for run in runs),
            tokens=sum(run.tokens for run in runs),
            wall_s=time.perf_counter() - began_s,
            cpu_s=sum(run.cpu_s for run in runs),
            step_s=sum(run.step_s for run in runs),
            outside_s=sum(run.outside_s for run in runs),
        )
        self.alone.append(total)

    def report(self, one: Sequence[LoopRun]) -> dict[str, Any]:
        alone, speeds = self.alone[1:], [run.tokens_per_s for run in self.alone[1:]]
        sentences = [run.sources / run.wall_s for run in alone]
        return {
            **self.layout._asdict(),
            "tokens_per_s": statistics.median(speeds),
            "by_one_core": spread_of_ratios(speeds, [run.tokens_per_s for run in one]),
            "sentences_per_s": statistics.median(sentences),
            "engine_ms": statistics.median(1e3 * run.cpu_s / run.sources for run in alone),
            "served": self.served.report(by_engine=sentences),
        }


def measure_artifact(artifact: Path, plan: Plan) -> Iterator[dict[str, Any]]:
    """Lets every layout decode, then serve, in turn; yields after each round."""
    manifest = Manifest.read(artifact)
    chosen = dict.fromkeys([Layout(1, 1), *(plan.layouts or layouts(available_cores()))])
    each = round(_TRIED * max(1.0, plan.turn_s / _seconds(artifact)))
    with (
        tempfile.TemporaryDirectory() as place,
        ExitStack() as stack,
        ThreadPoolExecutor(available_cores()) as starters,
    ):
        plain = seqserve_server(artifact, Path(place))
        # Most of a start waits for files or runs on one core.
        starts: dict[Layout, list[Future[EngineProcess]]] = {
            layout: [
                starters.submit(_engine, artifact, layout, each, number)
                for number in range(layout.processes)
            ]
            for layout in chosen
        }
        cases = []
        for layout, engines in starts.items():
            team = [stack.enter_context(engine.result()) for engine in engines]
            servers = {}
            for count in plan.fronts or [ServeOptions().front_count()]:
                log = Path(place) / f"{_name(layout._asdict())}, {count}.log"
                server = ServerProcess(_server(plain, layout, count), log)
                servers[count] = stack.enter_context(server)
            cases.append(_Case(layout, team, Served(servers)))
        texts = mixed(PAIRS)
        # Round 0 only warms up.
        for round_ in range(plan.rounds + 1):
            for case in cases:
                case.decode()
                callers = plan.callers or [_CALLERS_OF_A_ROW * case.layout.rows]
                case.served.take_turns(texts, callers, plan.turn_s)
            if round_:
                yield _report(manifest, cases)


def _report(manifest: Manifest, cases: Sequence[_Case]) -> dict[str, Any]:
    one = cases[0].alone[1:]
    share = statistics.median(run.outside_s / run.step_s for run in one)
    return {
        "model": manifest.label,
        "precision": manifest.precision,
        "outside_share": share,
        "busy_workers_at_most": 1 / share,
        "layouts": [case.report(one) for case in cases],
    }


def _server(plain: Server, layout: Layout, count: int) -> Server:
    counts = {
        "--engine-processes": layout.processes,
        "--workers": layout.processes * layout.workers,
        "--slots": layout.rows,
        "--front-processes": count,
        "--max-queue": 1 << 16,
    }
    options = [str(part) for pair in counts.items() for part in pair]
    return replace(plain, arguments=[*plain.arguments, *options])


def _engine(artifact: Path, layout: Layout, each: int, number: int) -> EngineProcess:
    """Starts one process of a layout; all have the same sentences for each worker, in other orders.

    Shares of one shuffled list would differ, and the slowest decides.
    """
    tokenizer = Tokenizer.load(artifact / "tokenizer.json")
    sources = [tokenizer.encode(text) for text in mixed(each)] * layout.workers
    random.Random(number).shuffle(sources)
    return EngineProcess(artifact, sources, _ROWS * layout.workers, layout.workers)


def _seconds(artifact: Path) -> float:
    with _engine(artifact, Layout(1, 1), _TRIED, 0) as engine:
        engine.decode()
        return engine.decode().wall_s


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure` yielded: the engines alone, then what callers get."""
    model = f"{report['model']}, {report['precision']}"
    rows = [
        [
            _name(layout),
            f"{layout['tokens_per_s']:,.0f}",
            f"{layout['sentences_per_s']:,.0f}",
            f"{layout['engine_ms']:.2f}",
            shown(layout["by_one_core"]),
        ]
        for layout in report["layouts"]
    ]
    head = [model, "tokens/s", "sentences/s", "CPU ms each", "times one core"]
    share, busy = report["outside_share"], report["busy_workers_at_most"]
    note = (
        f"{_ROWS} sentences in flight on each core; {share:.1%} of a step is outside ONNX Runtime,"
        f" so a process keeps {busy:.0f} workers busy at most."
    )
    served = [
        run | {"name": _name(layout), "ratio": shown(run["by_engine"])}
        for layout in report["layouts"]
        for run in layout["served"]
    ]
    after = {"times the engines' sentences/s": "{ratio}"}
    return [Table(head, rows, note), served_table(served, {"served": "{name}"}, after)]


def _name(layout: dict[str, Any]) -> str:
    return f"processes: {layout['processes']}, workers of each: {layout['workers']}"
