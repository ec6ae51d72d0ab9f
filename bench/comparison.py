"""Throughput of engines that take turns on the same sources, as ratios of their speeds.

Outputs are compared first: an engine that decodes other tokens does something else.
Then every engine runs once in each round, so that a noisy moment of the machine hits all of them
alike. The result is the median of the ratios within a round.
"""

import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias, TypeVar

from bench.drivers import Driver, Row, Rows, gc_freeze
from bench.tables import Table, shown, spread_of_ratios

K = TypeVar("K")
V = TypeVar("V")
Build: TypeAlias = Callable[[], Driver[Row]]
"""Starts an engine."""

MIN_EQUAL_SHARE = 0.98
"""Others sum in another order, so near ties may fall the other way."""


def take_turns(engines: Mapping[K, Callable[[], V]], rounds: int) -> dict[K, list[V]]:
    """Lets every engine run once in each round; returns its results by round."""
    results: dict[K, list[V]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, run in engines.items():
            results[name].append(run())
    return results


def compare(
    engines: Sequence[Build[Row]],
    sources: Sequence[Row],
    rows: int,
    rounds: int,
    *,
    may_differ: bool = False,
    reference: str = "fp32",
    tokens: int = 0,
) -> dict[str, Any]:
    """Starts engines, checks that outputs agree, and lets them take turns.

    Args:
        engines: The engines to compare. sources: Token ids or texts; the same for all.
        rows: In flight in each worker, for the report; with 1 each source comes alone.
        may_differ: Whether outputs may differ, as samples do.
        reference: Part of the name of the engine whose outputs all others should equal.
        tokens: Of all sources, if speeds are in source tokens; in target tokens if 0.
    """
    with ExitStack() as stack:
        drivers = [stack.enter_context(build()) for build in engines]
        outputs = {driver.name: driver.decode(sources) for driver in drivers}
        gc_freeze()
        expected = next(output for name, output in outputs.items() if reference in name)
        equal = {name: equal_share(expected, output) for name, output in outputs.items()}
        if not may_differ:
            check_equal(equal)
        batches = [[source] for source in sources] if tokens and rows == 1 else [sources]
        speeds = take_turns(
            {driver.name: partial(speed, driver, batches, tokens) for driver in drivers}, rounds
        )
    return {"rows": rows, "peers": peers_of(speeds, equal)}


def peers_of(
    speeds: Mapping[str, Sequence[float]], equal: Mapping[str, float | None]
) -> list[dict[str, Any]]:
    """Reports speeds by round, and the share of equal outputs, of engines that took turns."""
    return [
        {
            "name": name,
            "tokens_per_s": statistics.median(ours),
            "tokens_per_s_best": max(ours),
            "equal_share": equal[name],
            "ratios": {other: spread_of_ratios(ours, theirs) for other, theirs in speeds.items()},
        }
        for name, ours in speeds.items()
    ]


def speed(driver: Driver[Row], batches: Sequence[Sequence[Row]], tokens: int = 0) -> float:
    """Measures one turn of an engine, in tokens a second."""
    began_s = time.perf_counter()
    targets = [target for batch in batches for target in driver.decode(batch)]
    return (tokens or sum(map(len, targets))) / (time.perf_counter() - began_s)


def fastest(layouts: Sequence[Build[list[int]]], sources: Rows) -> Build[list[int]]:
    """Tries several layouts of one engine: the better of two turns after one that warms it up."""
    speeds = []
    for build in layouts:
        with build() as driver:
            speed(driver, [sources])
            speeds.append(max(speed(driver, [sources]), speed(driver, [sources])))
    return layouts[speeds.index(max(speeds))]


def equal_share(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Returns the share of sources that two engines decode alike."""
    return statistics.fmean(our == their for our, their in zip(ours, theirs, strict=True))


def check_equal(shares: Mapping[str, float]) -> None:
    """Refuses engines that compute something else.

    Eight bits round: there only the speed is compared, and the share is shown.
    """
    for name, share in shares.items():
        if share < MIN_EQUAL_SHARE and "int8" not in name:
            raise SystemExit(f"{name} agrees on {share:.1%} of sources: not comparable")


def speed_table(subject: str, tables: Sequence[dict[str, Any]]) -> Table:
    """Lays out what :func:`compare` returned, a column each, by ``name`` or rows in flight."""
    columns = columns_of(tables)
    names = list(columns[0])
    rows = [
        [name, *(f"{column[name]['tokens_per_s']:,.0f}" for column in columns)] for name in names
    ]
    for precision in ("int8", "fp32"):
        ours, theirs = f"seqserve {precision}", f"CTranslate2 {precision}"
        ratios = [ratio_of(column, ours, theirs) for column in columns]
        rows.append([f"**seqserve / CTranslate2, {precision}**", *ratios])
    rounded = [name for name in names if name.endswith("int8")]
    shares = [[f"{column[name]['equal_share']:.0%}" for name in rounded] for column in columns]
    rows.append(["same as at fp32, int8: seqserve, CTranslate2", *map(", ".join, shares)])
    head = [str(table.get("name", table["rows"])) for table in tables]
    return Table([f"{subject}; tokens/s", *head], rows)


def columns_of(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the engines of each table by their names, without workers and threads."""
    return [
        {re.sub(r" \d+x\d+", "", peer["name"]): peer for peer in table["peers"]} for table in tables
    ]


def ratio_of(column: dict[str, Any], ours: str, theirs: str) -> str:
    """Writes the ratio of the speeds of two engines."""
    return shown(column[ours]["ratios"][column[theirs]["name"]])
