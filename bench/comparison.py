"""Compares engines that take turns on the same sources, as ratios of their speeds.

Outputs are compared first: an engine that decodes other tokens does something else.
Then every engine runs once in each round, so that a noisy moment of the machine hits all of them
alike. The result is the median of the ratios within a round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.garbage import freeze_objects
from bench.peers import Peer, Rows
from bench.provenance import print_signature

MIN_EQUAL_SHARE = 0.98
"""Others sum in another order, so near ties may fall the other way."""


def compare(
    peers: Sequence[Peer], sources: Rows, rows: int, rounds: int, *, may_differ: bool = False
) -> dict[str, Any]:
    """Checks that outputs agree, then lets the peers take turns.

    Args:
        peers: The first one is what the others are compared with.
        sources: Token ids; the same for all.
        rows: In flight in each worker, for the report.
        rounds: Turns of each peer.
        may_differ: Whether outputs may differ, as those that are sampled.

    Raises:
        SystemExit: Outputs at fp32 differ, and so cannot be compared.
    """
    outputs = {peer.name: peer.decode(sources) for peer in peers}
    freeze_objects()
    whole = next(found for name, found in outputs.items() if "fp32" in name)
    equal = {name: equal_share(whole, found) for name, found in outputs.items()}
    for name, share in equal.items():
        # Eight bits round: there only the speed is compared, and the share is shown.
        if share < MIN_EQUAL_SHARE and not (may_differ or "int8" in name):
            raise SystemExit(f"{name} agrees on {share:.1%} of sources: not comparable")
    speeds: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            speeds[peer.name].append(speed(peer, sources))
    return {
        "rows": rows,
        "peers": [
            {
                "name": name,
                "tokens_per_s": statistics.median(found),
                "tokens_per_s_best": max(found),
                "equal_share": equal[name],
                "ratios": {
                    other: spread([our / their for our, their in zip(found, theirs, strict=True)])
                    for other, theirs in speeds.items()
                },
            }
            for name, found in speeds.items()
        ],
    }


def speed(peer: Peer, sources: Rows) -> float:
    """Measures one turn of a peer, in tokens a second."""
    began_s = time.perf_counter()
    found = peer.decode(sources)
    return sum(map(len, found)) / (time.perf_counter() - began_s)


def fastest(make: Sequence[Callable[[], Peer]], sources: Rows) -> Callable[[], Peer]:
    """Tries several layouts of one engine: the better of two turns after one that warms it up."""
    found = []
    for build in make:
        peer = build()
        speed(peer, sources)
        found.append(max(speed(peer, sources), speed(peer, sources)))
        peer.close()
    return make[found.index(max(found))]


def equal_share(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """Gives the share of sources that two engines decode alike."""
    return statistics.fmean(our == their for our, their in zip(ours, theirs, strict=True))


def spread(values: Sequence[float]) -> dict[str, float]:
    """Gives the median, the lowest and the highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def shown(ratio: dict[str, float], width: int = 0) -> str:
    """Writes what :func:`spread` gave; ``width`` is that of the median."""
    return f"{ratio['median']:{width}.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"


def print_table(table: dict[str, Any], base: str) -> None:
    """Prints what :func:`compare` gave, each peer as a multiple of ``base``."""
    way = f", {table['name']}" if "name" in table else ""
    print(f"{table['rows']} sources in flight a worker{way}")
    print(f"  {'engine':26}{'tokens/s':>10}{'best':>10}   times {base:24} same output")
    for peer in table["peers"]:
        ratio = peer["ratios"][base]
        print(
            f"  {peer['name']:26}{peer['tokens_per_s']:10,.0f}{peer['tokens_per_s_best']:10,.0f}"
            f"   {shown(ratio, 5)}"
            f" {peer['equal_share']:22.1%}"
        )
    print_signature()
