"""Cases of the benchmark on a GPU, the time for them, and the tables of what was measured."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.drivers import Rows
from bench.models import random_sources
from bench.random_artifact import SHAPES, folder_name
from bench.tables import Table, shown

BEAM_SIZE = 5
_GRACE_S = 5.0
"""How much later than planned an engine that is busy is ended."""
LENGTH = 32
"""Target tokens of each source."""
_LONG = {"BART-large-CNN": (128, 260, 440)}
"""Target tokens, and the fewest and most source tokens, of shapes with long sources."""
_WAVES = 2
"""Times as many sources in a turn as are in flight."""


@dataclass(frozen=True, slots=True)
class Case:
    """A shape, and how many sources are in flight."""

    shape: str
    """A key of :data:`~bench.random_artifact.SHAPES`."""
    rows: int
    beam_size: int = 1
    is_served: bool = False
    """Whether callers ask our server, and no other engine."""

    @classmethod
    def parse(cls, text: str) -> Case:
        """Reads ``bart-large:64``, ``marian-base:8:beam`` or ``marian-base:64:served``."""
        name, rows, *rest = text.split(":")
        shapes = {folder_name(shape): shape for shape in SHAPES}
        if name not in shapes or rest not in ([], ["beam"], ["served"]):
            raise ValueError(
                f"{text}: not SHAPE:ROWS[:beam|:served]; shapes are {', '.join(shapes)}"
            )
        beam_size = BEAM_SIZE if rest == ["beam"] else 1
        return cls(shapes[name], int(rows), beam_size, is_served=rest == ["served"])

    @property
    def label(self) -> str:
        """As :meth:`parse` reads it."""
        rest = ":beam" * (self.beam_size > 1) + ":served" * self.is_served
        return f"{folder_name(self.shape)}:{self.rows}{rest}"

    @property
    def length(self) -> int:
        """Target tokens of each source."""
        return _LONG[self.shape][0] if self.shape in _LONG else LENGTH

    def sources(self) -> Rows:
        """Draws sources, the end token last in each."""
        config, count = SHAPES[self.shape], _WAVES * self.rows
        if self.shape not in _LONG:
            return random_sources(count, config=config)
        draw = random.Random(7)
        _, fewest, most = _LONG[self.shape]
        return [
            [*draw.choices(range(4, config.vocabulary_size), k=draw.randint(fewest, most) - 1),
             config.eos_id]
            for _ in range(count)
        ]  # fmt: skip


_CASES = """
    marian-base:64:served marian-base:64 t5-base:64 marian-base:256 marian-base:1024 marian-base:1
    marian-base:1:served bart-large-cnn:64 marian-base:256:served flan-t5-base:64 marian-base:8:beam
    marian-base:64:beam bart-large-cnn:32 bart-large-cnn:128 t5-base:1 t5-base:64:served
    marian-base:8 bart-large:1 bart-large:64 nllb-600m:1 nllb-600m:64 bart-large:256 nllb-600m:256
"""
CASES = tuple(Case.parse(label) for label in _CASES.split())
"""The most important cases come first."""


class Clock:
    """Time that is left for cases."""

    def __init__(self, max_s: float) -> None:
        self._began_s = time.monotonic()
        self._end_s = self._began_s + max_s

    @property
    def left_s(self) -> float:
        """Seconds until no case should begin."""
        return self._end_s - time.monotonic()

    def patience_s(self, most_s: float = math.inf) -> float:
        """How long to wait for something that takes ``most_s`` at most."""
        return min(max(self.left_s, 0.0) + _GRACE_S, most_s)

    def say(self, text: str) -> None:
        """Prints a line with the time before it."""
        print(f"{time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)


OURS = "seqserve fp16"

Report = dict[str, Any]

_SERVED = {
    "served; callers": "{shape}, {callers}",
    "ready after s": "{ready_s:.1f}",
    "requests/s": "{requests_per_s:,.0f}",
    "tokens/s": "{tokens_per_s:,.0f}",
    "of the engine alone": "{share}",
    "p50 ms": "{p50_ms:,.1f}",
    "p99 ms": "{p99_ms:,.1f}",
    "first token ms": "{first_token_ms:,.1f}",
    "us a step": "{step_us:,.0f}",
    "failed": "{failed}",
    "cores of the front": "{front_cores:.2f}",
}
_STEPS = {
    "steps of seqserve fp16": "{label}",
    "rows": "{rows:,.0f}",
    "us a step": "{step_us[median]:,.0f}",
    "of the bandwidth": "{bytes:.0%}",
    "of the products": "{products:.0%}",
    "outside ONNX Runtime": "{outside_share:.0%}",
    "us outside": "{outside_us:,.0f}",
    "us to encode a token": "{encode_us_a_token:,.1f}",
    "of the time, encoding": "{encode_share:.0%}",
}


def tables(report: Report) -> list[Table]:
    """Lays out the speeds of each shape, a column for each number of rows, and our steps."""
    found = []
    for shape in report["work"]:
        for beam_size in (1, BEAM_SIZE):
            cases = [
                case
                for case in report["cases"]
                if case["shape"] == shape and case["beam_size"] == beam_size
            ]
            if cases:
                name = shape if beam_size == 1 else f"{shape}, beams of {beam_size}"
                found.append(_speeds(name, sorted(cases, key=lambda case: case["rows"])))
    steps = [case for case in report["cases"] if case.get("step") and case["beam_size"] == 1]
    if steps:
        found.append(_steps(report, steps))
    if report["served"]:
        found.append(_served(report))
    return found


def _served(report: Report) -> Table:
    alone = {
        (case["shape"], case["rows"]): peer["tokens_per_s"]
        for case in report["cases"]
        for peer in case["peers"]
        if peer["name"] == OURS and case["beam_size"] == 1
    }
    records = []
    for case in report["served"]:
        engine = alone.get((case["shape"], case["callers"]))
        share = f"{case['tokens_per_s'] / engine:.2f}" if engine else ""
        records.append({**case, "share": share})
    return Table.of(_SERVED, records, "Counted from the first request; no source comes twice.")


def _speeds(shape: str, cases: Sequence[Report]) -> Table:
    columns = [{peer["name"]: peer for peer in case["peers"]} for case in cases]
    known = [[*column, *case["failed"]] for column, case in zip(columns, cases, strict=True)]
    names = list(dict.fromkeys(name for own in known for name in own))
    rows = [
        [name, *(f"{c[name]['tokens_per_s']:,.0f}" if name in c else "failed" for c in columns)]
        for name in names
    ]
    for name in names:
        if name != OURS and any(name in column for column in columns):
            ratios = [column.get(OURS, {}).get("ratios", {}).get(name) for column in columns]
            shares = [shown(ratio) if ratio else "" for ratio in ratios]
            rows.append([f"**seqserve fp16 / {name}**", *shares])
    for name in names:
        if name.startswith("CTranslate2"):
            equal = [column.get(name, {}).get("equal_share") for column in columns]
            shares = ["" if share is None else f"{share:.0%}" for share in equal]
            rows.append([f"same targets as ours: {name}", *shares])
    reasons = dict.fromkeys(reason for case in cases for reason in case["failed"].values())
    head = [f"{shape}; rows in flight; tokens/s", *(str(case["rows"]) for case in cases)]
    return Table(head, rows, " ".join(f"{reason}." for reason in reasons))


def _steps(report: Report, cases: Sequence[Report]) -> Table:
    limits, records = report["limits"], []
    for case in cases:
        step, work = case["step"], report["work"][case["shape"]]
        seconds = step["step_us"]["median"] / 1e6
        products = 2 * work["weights"] * step["rows"] / seconds
        shares = {
            "bytes": work["bytes"] / seconds / limits["bytes_per_s"],
            "products": products / limits["operations_per_s"],
        }
        records.append(step | shares | {"label": case["label"]})
    note = (
        f"{shown_limits(limits)}. Shares count the weights of the decoder's products alone: neither"
        " caches nor attention."
    )
    return Table.of(_STEPS, records, note)


def shown_limits(limits: Report) -> str:
    """Writes what a device can do at best."""
    return (
        f"{limits['name']}: {limits['bytes_per_s'] / 1e9:,.0f} GB/s read and written by a copy,"
        f" {limits['operations_per_s'] / 1e12:,.3g} TFLOP/s in a product of large matrices"
    )
