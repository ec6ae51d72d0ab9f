"""How throughput grows with cores: workers of one engine process, or of several.

Workers of one process share an interpreter. While one of them is outside ONNX Runtime, the others
that need to be there wait. So the share of a step outside it bounds how many workers a process can
keep busy, and tells from few cores what becomes of many.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import base_size_copy
from bench.comparison import take_turns
from bench.drivers.seqserve import EngineProcess, LoopRun
from bench.models import shipped_artifacts
from bench.requests import everyday
from bench.tables import Table, shown, spread_of_ratios
from seqserve.processes import available_cores
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.engine.runtime import doubling
from seqserve_server.text.tokenizer import Tokenizer

_ROWS = 32
_SEED = 1


class Layout(NamedTuple):
    """How cores are shared out: one worker for each of them."""

    processes: int
    workers: int
    """Of each process."""

    @property
    def cores(self) -> int:
        """One a worker."""
        return self.processes * self.workers

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Reads ``2,8``, two processes of eight workers."""
        processes, workers = map(int, text.split(","))
        return cls(processes, workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    rounds: int = 5
    turn_s: float = 2.0
    """How long a turn takes, about; at least all sentences are decoded once for each core."""
    layouts: Sequence[Layout] = ()
    """All of :func:`layouts` if there are none; one core alone is always among them."""


def layouts(cores: int) -> list[Layout]:
    """Lists one core, then twice as many each time up to all, in one process and in one each."""
    sizes = doubling(cores)
    return list(dict.fromkeys(pair for n in sizes for pair in (Layout(1, n), Layout(n, 1))))


def measure(
    rounds: int, turn_s: float, layouts: Sequence[str], folder: Path
) -> Iterator[list[dict[str, Any]]]:
    """Measures the shipped model, and its copy at Marian's base size; yields after each."""
    parsed = [Layout.parse(text) for text in layouts]
    plan = Plan(rounds=rounds, turn_s=turn_s, layouts=parsed)
    report = [measure_artifact(shipped_artifacts()[0], plan)]
    yield report
    yield [*report, measure_artifact(_larger(folder), plan)]


def _larger(folder: Path) -> Path:
    place = folder / base_size_copy.INT8 / "1"
    if not place.exists():
        floats = shipped_artifacts()[1]
        return base_size_copy.write_int8(floats, folder)
    return place


def measure_artifact(artifact: Path, plan: Plan) -> dict[str, Any]:
    """Lets every layout decode everyday sentences in turn."""
    manifest = Manifest.read(artifact)
    chosen = dict.fromkeys([Layout(1, 1), *(plan.layouts or layouts(available_cores()))])
    copies = max(1, round(plan.turn_s / _seconds(artifact)))
    with ExitStack() as stack, ThreadPoolExecutor(available_cores()) as starters:
        # Most of a start waits for files or runs on one core.
        started = {
            layout: [
                starters.submit(_engine, artifact, layout, copies, number)
                for number in range(layout.processes)
            ]
            for layout in chosen
        }
        turns = {
            layout: partial(_decode, [stack.enter_context(engine.result()) for engine in engines])
            for layout, engines in started.items()
        }
        # Unmeasured: the first only warms up.
        take_turns(turns, 1)
        runs = take_turns(turns, plan.rounds)
    one = runs[Layout(1, 1)]
    share = statistics.median(run.outside_s / run.step_s for run in one)
    return {
        "model": manifest.label,
        "precision": manifest.precision,
        "rows": _ROWS,
        "outside_share": share,
        "busy_workers_at_most": 1 / share,
        "layouts": [
            {
                **layout._asdict(),
                "tokens_per_s": statistics.median(run.tokens_per_s for run in several),
                "by_one_core": spread_of_ratios(
                    [run.tokens_per_s for run in several], [run.tokens_per_s for run in one]
                ),
            }
            for layout, several in runs.items()
        ],
    }


def _engine(artifact: Path, layout: Layout, copies: int, number: int) -> EngineProcess:
    """Starts one process of a layout; all have as many copies of all sentences for each worker.

    Shares of one shuffled list would differ, and the slowest decides.
    """
    tokenizer = Tokenizer.load(artifact / "tokenizer.json")
    sources = [tokenizer.encode(text) for text in everyday()] * (copies * layout.workers)
    random.Random(_SEED + number).shuffle(sources)
    return EngineProcess(artifact, sources, _ROWS * layout.workers, layout.workers)


def _seconds(artifact: Path) -> float:
    with _engine(artifact, Layout(1, 1), 1, 0) as engine:
        engine.decode()
        return engine.decode().wall_s


def _decode(team: Sequence[EngineProcess]) -> LoopRun:
    began_s = time.perf_counter()
    with ThreadPoolExecutor(len(team)) as threads:
        runs: list[LoopRun] = list(threads.map(EngineProcess.decode, team))
    return LoopRun(
        tokens=sum(run.tokens for run in runs),
        wall_s=time.perf_counter() - began_s,
        cpu_s=sum(run.cpu_s for run in runs),
        step_s=sum(run.step_s for run in runs),
        outside_s=sum(run.outside_s for run in runs),
    )


def tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`measure` returned: a column for each model."""
    rows = [[_name(layout)] for layout in report[0]["layouts"]]
    for row, *columns in zip(rows, *(model["layouts"] for model in report), strict=True):
        row += [f"{one['tokens_per_s']:,.0f}, {shown(one['by_one_core'])}" for one in columns]
    rows.append(["of a step outside ONNX Runtime", *(f"{m['outside_share']:.1%}" for m in report)])
    busy = [f"{model['busy_workers_at_most']:.0f}" for model in report]
    rows.append(["workers that a process keeps busy at most", *busy])
    title = f"{_ROWS} sentences in flight on each core; tokens/s, times one core"
    return [Table([title, *(f"{m['model']}, {m['precision']}" for m in report)], rows)]


def _name(layout: dict[str, Any]) -> str:
    return f"processes: {layout['processes']}, workers of each: {layout['workers']}"
