"""Draws ``capacity.svg`` and checks a plan: ``python -m docs.capacity``, some two minutes.

One server has one core, then two servers have a core each, and what sends the load shares the cores
of the servers that it calls. A search finds the highest rate of both, and loads at rates around it,
in turns, give the curves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import sub
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from tests.support.process import ServerProcess

from seqserve.load.capacity import Replica
from seqserve.pictures import GREY
from seqserve_plot.picture import grid, save

DOCS = Path(__file__).parent
LIMIT_MS = 200.0
"""Within which 99 of 100 answers must come."""
SECONDS = 2
"""How long each load lasts."""
SHARES = (0.1, 0.5, 0.75, 1.0, 1.15, 1.3)
"""Of the highest rate, at which the curves are measured."""
_TICKS_MS = (10, 20, 50, 100, 200, 500, 1000)


def main() -> None:
    """Measures, draws, and prints the figures of the page."""
    with ExitStack() as stack:
        servers = []
        for core in (0, 1):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options = ("--default-model", "en-de", "--keep-versions", "1", "--caller-share", "1")
            with kept_to(core):
                server = ServerProcess(DOCS.parent / "models", folder, *options)
            servers.append(stack.enter_context(server))
        first, second = (server.target for server in servers)
        layouts = {"one server": ("0", first), "two servers": ("0,1", f"{first},{second}")}
        highest = {
            name: load(*layout, "--find-rate", "--p99", LIMIT_MS, "--duration", SECONDS)
            for name, layout in layouts.items()
        }
        one = Replica.of(highest["one server"])
        curves: dict[str, list[dict[str, Any]]] = {name: [] for name in layouts}
        for share in SHARES:
            for count, (name, layout) in enumerate(layouts.items(), start=1):
                rate = share * count * one.rate_per_s
                before = steps_of(servers[0])
                point = load(*layout, "--request-rate", f"{rate:.4g}", "--duration", SECONDS)
                made, rows, seconds = map(sub, steps_of(servers[0]), before)
                point |= {"rows": rows / made, "step_ms": 1e3 * seconds / made}
                curves[name].append(point)
                print(name, *figures(point), sep=" | ")
    found = highest["two servers"]["highest_request_rate"]
    print(f"one server: {one.rate_per_s:.1f} a second, {one.in_flight:.1f} under way")
    print(f"two servers: {found:.1f} a second; predicted {2 * one.rate_per_s:.1f}")
    print(f"measured by predicted: {found / 2 / one.rate_per_s:.2f}")
    figure, [axes] = grid(1, len(curves), cell=(5, 3))
    for count, (place, (name, points)) in enumerate(zip(axes, curves.items(), strict=True), 1):
        rate = highest[name]["highest_request_rate"]
        draw(place, name, points, count * one.rate_per_s, rate)
    save(figure, DOCS / "capacity.svg")


@contextmanager
def kept_to(core: int) -> Iterator[None]:
    """Keeps processes that are started meanwhile to a core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def load(cores: str, target: str, *options: object) -> dict[str, Any]:
    """Sends a load from some cores and returns its result."""
    command = ["taskset", "--cpu-list", cores, sys.executable, "-m", "seqserve", "load", "--json"]
    words = [*command, "--target", target, "--num-warmups", "64", *map(str, options)]
    done = subprocess.run(words, capture_output=True, text=True)
    if not done.stdout:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def steps_of(server: ServerProcess) -> tuple[float, ...]:
    """Reads how many steps a server has made, with how many rows, in how many seconds."""
    names = ("batch_rows_count", "batch_rows_sum", "step_duration_seconds_sum")
    return tuple(map(server.value, names))


def figures(point: dict[str, Any]) -> tuple[str, ...]:
    """Returns the row of a table: rate, p50, p99, delay of the generator, step, rows, failures."""
    times = ("median_e2el_ms", "p99_e2el_ms", "p99_lateness_ms", "step_ms", "rows")
    return (*(f"{point[name]:.1f}" for name in ("request_rate", *times)), f"{point['failed']}")


def draw(
    axes: Axes, name: str, points: list[dict[str, Any]], predicted: float, highest: float
) -> None:
    """Draws the times of a number of servers against the rate."""
    rates = [point["offered_throughput"] for point in points]
    for key, label in (("median_e2el_ms", "p50"), ("p99_e2el_ms", "p99")):
        axes.plot(rates, [point[key] for point in points], marker="o", markersize=3, label=label)
    axes.axhline(LIMIT_MS, linestyle=":", color=GREY, linewidth=1, label="limit of p99")
    axes.axvline(highest, linestyle="--", color=GREY, linewidth=1, label="highest rate")
    if predicted != highest:
        axes.axvline(predicted, linestyle="-.", color=GREY, linewidth=1, label="predicted")
    axes.set(title=name, xlabel="requests a second", ylabel="ms", yscale="log")
    axes.set(xlim=(0, None), ylim=(5, 1500), yticks=_TICKS_MS, yticklabels=map(str, _TICKS_MS))
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


if __name__ == "__main__":
    main()
