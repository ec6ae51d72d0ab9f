"""Measures how throughput grows with cores: workers of one engine process, or a process for each.

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.comparison import shown, spread
from bench.engine import EngineProcess, EngineRun
from bench.provenance import print_signature
from bench.sentences import everyday
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.engine.worker import doubling
from seqserve_server.front.cores import available_cores

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


@dataclass(frozen=True, slots=True)
class Run:
    """One decoding of all sources by a layout."""

    tokens: int
    wall_s: float
    outside_share: float
    """Of the time of steps, outside ONNX Runtime."""

    @property
    def tokens_per_s(self) -> float:
        """Of all cores together."""
        return self.tokens / self.wall_s


def layouts(cores: int) -> list[Layout]:
    """Lists one core, then twice as many each time up to all, in one process and in one each."""
    found = [layout for size in doubling(cores) for layout in (Layout(1, size), Layout(size, 1))]
    return list(dict.fromkeys(found))


def measure(artifact: Path, rounds: int, *, repeat: int) -> dict[str, Any]:
    """Lets every layout decode everyday sentences in turn.

    Args:
        artifact: What decodes.
        rounds: Turns of each layout.
        repeat: Times the sentences are decoded in a turn, for each core.
    """
    manifest, found = Manifest.read(artifact), layouts(available_cores())
    with ExitStack() as stack:
        teams = {
            layout: stack.enter_context(_team(artifact, layout, _sources(artifact, layout, repeat)))
            for layout in found
        }
        runs: dict[Layout, list[Run]] = {layout: [] for layout in found}
        # Round 0 only warms up.
        for round_ in range(rounds + 1):
            for layout, team in teams.items():
                run = _decode(team)
                if round_:
                    runs[layout].append(run)
    one = runs[Layout(1, 1)]
    share = statistics.median(run.outside_share for run in one)
    return {
        "model": manifest.label,
        "precision": manifest.precision,
        "rows": _ROWS,
        "outside_share": share,
        "busy_workers_at_most": 1 / share,
        "layouts": [
            {
                **layout._asdict(),
                "tokens_per_s": statistics.median(run.tokens_per_s for run in runs[layout]),
                "by_one_core": spread(
                    [
                        run.tokens_per_s / alone.tokens_per_s
                        for run, alone in zip(runs[layout], one, strict=True)
                    ]
                ),
            }
            for layout in found
        ],
    }


def _sources(artifact: Path, layout: Layout, repeat: int) -> list[list[int]]:
    tokenizer = Tokenizer.load(artifact / "tokenizer.json")
    sources = [tokenizer.encode(text) for text in everyday()] * (repeat * layout.cores)
    random.Random(_SEED).shuffle(sources)
    return sources


@contextmanager
def _team(
    artifact: Path, layout: Layout, sources: Sequence[list[int]]
) -> Iterator[list[EngineProcess]]:
    """Starts the engines of a layout, each with a share of the sources."""
    shares = [sources[first :: layout.processes] for first in range(layout.processes)]
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                EngineProcess(artifact, share, _ROWS * layout.workers, layout.workers)
            )
            for share in shares
        ]


def _decode(team: Sequence[EngineProcess]) -> Run:
    """Lets all engines of a team decode at once."""
    began_s = time.perf_counter()
    with ThreadPoolExecutor(len(team)) as threads:
        runs: list[EngineRun] = list(threads.map(EngineProcess.decode, team))
    return Run(
        tokens=sum(run.tokens for run in runs),
        wall_s=time.perf_counter() - began_s,
        outside_share=sum(run.outside_s for run in runs) / sum(run.step_s for run in runs),
    )


def print_table(report: dict[str, Any]) -> None:
    """Prints what :func:`measure` gave."""
    print(
        f"\n{report['model']}, {report['precision']}: {report['rows']} in flight on each core;"
        f" {report['outside_share']:.1%} of a step outside ONNX Runtime,"
        f" so a process keeps {report['busy_workers_at_most']:.0f} workers busy at most\n"
    )
    print(
        f"  {'cores':>5}{'processes':>11}{'workers of each':>17}{'tokens/s':>10}   times one core"
    )
    for row in report["layouts"]:
        print(
            f"  {row['processes'] * row['workers']:5}{row['processes']:11}{row['workers']:14}"
            f"{row['tokens_per_s']:10,.0f}   {shown(row['by_one_core'])}"
        )
    print_signature()
