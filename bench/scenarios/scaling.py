"""How throughput grows with cores: workers of one engine process, or a process for each.

Workers of one process share an interpreter. While one of them is outside ONNX Runtime, the others
that need to be there wait. So the share of a step outside it bounds how many workers a process can
keep busy, and tells from few cores what becomes of many.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import base_size_copy
from bench.drivers import Rows
from bench.drivers.engine_process import EngineProcess, LoopRun
from bench.scenarios.offline import shipped_artifacts
from bench.sentences import everyday
from bench.tables import Table, shown, spread_of_ratios
from bench.turns import take_turns
from seqserve.cores import available_cores
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.engine.worker import doubling

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


def layouts(cores: int) -> list[Layout]:
    """Lists one core, then twice as many each time up to all, in one process and in one each."""
    sizes = doubling(cores)
    return list(dict.fromkeys(pair for n in sizes for pair in (Layout(1, n), Layout(n, 1))))


def measure(rounds: int) -> list[dict[str, Any]]:
    """Measures the shipped model, and its copy at Marian's base size."""
    integers, floats = shipped_artifacts()
    with tempfile.TemporaryDirectory() as folder:
        larger = base_size_copy.write(floats, Path(folder))["int8"]
        return [
            measure_artifact(artifact, rounds, repeat=repeat)
            for artifact, repeat in ((integers, 10), (larger, 1))
        ]


def measure_artifact(artifact: Path, rounds: int, *, repeat: int) -> dict[str, Any]:
    """Lets every layout decode everyday sentences in turn.

    Args:
        artifact: What decodes.
        rounds: Turns of each layout.
        repeat: Times the sentences are decoded in a turn, for each core.
    """
    manifest = Manifest.read(artifact)
    with ExitStack() as stack:
        turns = {
            layout: partial(_decode, stack.enter_context(_team(artifact, layout, repeat)))
            for layout in layouts(available_cores())
        }
        # Unmeasured: the first only warms up.
        take_turns(turns, 1)
        runs = take_turns(turns, rounds)
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


def _sources(artifact: Path, layout: Layout, repeat: int) -> Rows:
    tokenizer = Tokenizer.load(artifact / "tokenizer.json")
    sources = [tokenizer.encode(text) for text in everyday()] * (repeat * layout.cores)
    random.Random(_SEED).shuffle(sources)
    return sources


@contextmanager
def _team(artifact: Path, layout: Layout, repeat: int) -> Iterator[list[EngineProcess]]:
    """Starts the engines of a layout, each with a share of the sources."""
    sources, slots = _sources(artifact, layout, repeat), _ROWS * layout.workers
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                EngineProcess(artifact, sources[first :: layout.processes], slots, layout.workers)
            )
            for first in range(layout.processes)
        ]


def _decode(team: Sequence[EngineProcess]) -> LoopRun:
    """Lets all engines of a team decode at once."""
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
