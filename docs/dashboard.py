"""Draws ``dashboard.svg``: ``python -m docs.dashboard``, half a minute.

A server gets few callers, then many, then more than it takes, and few again; a Prometheus watches
it and answers the queries of the dashboards, as it answers Grafana.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from tests.deploy.panels import Panel, panels
from tests.deploy.prometheus import Prometheus
from tests.support.process import ServerProcess, until

from seqserve import AsyncClient, RetryPolicy
from seqserve.errors import CallError
from seqserve_plot.picture import grid, save

DOCS = Path(__file__).parent
SENTENCES = DOCS / "inside" / "sentences.txt"
SHOWN = [
    ["reliability: Calls by status", "reliability: Refusals by reason"],
    ["overview: Until the whole answer", "engine: Slots in use"],
    ["engine: Waiting requests", "engine: Rows of a step"],
]
"""Panels, by row and column."""
CALLERS = (2, 24, 400, 2)
"""How many there are in each part."""
PART_S = 5.0
_STEP_S = 0.5
_UNITS = {"reqps": "a second", "s": "s", "percentunit": "share", "short": ""}


def main() -> None:
    """Runs the server and draws the answers of Prometheus."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = ("--slots", "32", "--default-model", "en-de", "--keep-versions", "1")
        server = stack.enter_context(ServerProcess(DOCS.parent / "models", folder, *options))
        (folder / "prometheus").mkdir()
        jobs = {"seqserve": server.metrics_url.removeprefix("http://")}
        prometheus = stack.enter_context(Prometheus(jobs, {}, folder / "prometheus"))
        until(lambda: bool(prometheus.query('up{job="seqserve"} == 1')))
        begin_s = time.time()
        asyncio.run(load(server.target))
        span = {"start": str(begin_s), "end": str(time.time()), "step": str(_STEP_S)}
        figure, axes = grid(len(SHOWN), len(SHOWN[0]), cell=(3.4, 2.2))
        known = {f"{panel.board}: {panel.title}": panel for panel in panels("3s")}
        for row, titles in zip(axes, SHOWN, strict=True):
            for place, title in zip(row, titles, strict=True):
                panel = known[f"seqserve-{title}"]
                answers = {
                    legend: prometheus.get("query_range", query=query, **span)["result"]
                    for legend, query in panel.queries.items()
                }
                draw(place, panel, answers, begin_s)
    save(figure, DOCS / "dashboard.svg")


async def load(target: str) -> None:
    """Calls the server from as many tasks as each part has callers."""
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    # Tasks of one thread: hundreds of threads would take the cores from the server.
    async with AsyncClient(target, retry=RetryPolicy(max_attempts=1)) as client:
        for callers in CALLERS:
            end_s = time.monotonic() + PART_S
            await asyncio.gather(*(call(client, sentences, end_s) for _ in range(callers)))


async def call(client: AsyncClient, sentences: list[str], end_s: float) -> None:
    """Translates one sentence after another; waits a little after a refusal."""
    while time.monotonic() < end_s:
        for sentence in sentences:
            if time.monotonic() > end_s:
                break
            try:
                await client.generate(sentence)
            except CallError:
                # At random: callers that all come back at once would leave the server idle between.
                await asyncio.sleep(random.uniform(0.2, 1.0))


def draw(axes: Axes, panel: Panel, answers: dict[str, Any], begin_s: float) -> None:
    """Draws the lines of a panel, without those that stay at zero."""
    for legend, series in answers.items():
        for each in series:
            points = [(at - begin_s, float(value)) for at, value in each["values"]]
            if any(value > 0 for _, value in points):
                times, values = zip(*points, strict=True)
                axes.plot(times, values, linewidth=1, label=named(legend, each["metric"]))
    axes.set(title=panel.title, xlabel="seconds", ylabel=_UNITS[panel.unit])
    axes.set(xlim=(0, PART_S * len(CALLERS)), ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


def named(legend: str, labels: dict[str, str]) -> str:
    """Fills labels into a legend, without the name of the only server."""
    words = re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), legend)
    return words.partition(" on ")[0]


if __name__ == "__main__":
    main()
