"""The tables of what was measured on a GPU: speeds, what callers get, and our steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.scenarios.gpu_cases import BEAM_SIZE
from bench.tables import Table, shown

OURS = "seqserve fp16"

Report = dict[str, Any]


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
    rows = []
    for case in report["served"]:
        engine = alone.get((case["shape"], case["callers"]))
        rows.append(
            [
                f"{case['shape']}, {case['callers']}",
                f"{case['ready_s']:.1f}",
                f"{case['requests_per_s']:,.0f}",
                f"{case['tokens_per_s']:,.0f}",
                f"{case['tokens_per_s'] / engine:.2f}" if engine else "",
                f"{case['p50_ms']:,.1f}",
                f"{case['p99_ms']:,.1f}",
                f"{case['first_token_ms']:,.1f}",
                f"{case['step_us']:,.0f}",
                str(case["failed"]),
                f"{case['front_cores']:.2f}",
            ]
        )
    head = [
        "served; callers",
        "ready after s",
        "requests/s",
        "tokens/s",
        "of the engine alone",
        "p50 ms",
        "p99 ms",
        "first token ms",
        "us a step",
        "failed",
        "cores of the front",
    ]
    return Table(head, rows, "From the first request on; no source comes twice.")


def _speeds(shape: str, cases: Sequence[Report]) -> Table:
    columns = [{peer["name"]: peer for peer in case["peers"]} for case in cases]
    names = list(dict.fromkeys(name for case in cases for name in (*_names(case), *case["failed"])))
    rows = [
        [name, *(f"{c[name]['tokens_per_s']:,.0f}" if name in c else "failed" for c in columns)]
        for name in names
    ]
    for name in names:
        if name != OURS and any(name in column for column in columns):
            ratios = [column.get(OURS, {}).get("ratios", {}).get(name) for column in columns]
            shares = [shown(ratio) if ratio else "" for ratio in ratios]
            rows.append([f"**seqserve fp16 / {name}**", *shares])
    compared = [name for name in names if name.startswith("CTranslate2")]
    for name in compared:
        shares = [f"{c[name]['equal_share']:.0%}" if _is_compared(c, name) else "" for c in columns]
        rows.append([f"same targets as ours: {name}", *shares])
    reasons = dict.fromkeys(reason for case in cases for reason in case["failed"].values())
    head = [f"{shape}; rows in flight; tokens/s", *(str(case["rows"]) for case in cases)]
    return Table(head, rows, " ".join(f"{reason}." for reason in reasons))


def _names(case: Report) -> list[str]:
    return [peer["name"] for peer in case["peers"]]


def _is_compared(column: Report, name: str) -> bool:
    return name in column and column[name]["equal_share"] is not None


def _steps(report: Report, cases: Sequence[Report]) -> Table:
    limits, rows = report["limits"], []
    for case in cases:
        step, work = case["step"], report["work"][case["shape"]]
        seconds = step["step_us"]["median"] / 1e6
        bytes_share = work["bytes"] / seconds / limits["bytes_per_s"]
        operations = 2 * work["weights"] * step["rows"] / seconds / limits["operations_per_s"]
        rows.append(
            [
                case["label"],
                f"{step['rows']:,.0f}",
                f"{step['step_us']['median']:,.0f}",
                f"{bytes_share:.0%}",
                f"{operations:.0%}",
                f"{step['outside_share']:.0%}",
                f"{step['outside_us']:,.0f}",
                f"{step['encode_us_a_token']:,.1f}",
                f"{step['encode_share']:.0%}",
            ]
        )
    head = [
        "steps of seqserve fp16",
        "rows",
        "us a step",
        "of the bandwidth",
        "of the products",
        "outside ONNX Runtime",
        "us outside",
        "us to encode a token",
        "of the time, encoding",
    ]
    note = (
        f"{shown_limits(limits)}. Shares count the weights of the decoder's products alone: neither"
        " caches nor attention."
    )
    return Table(head, rows, note)


def shown_limits(limits: Report) -> str:
    """Writes what a device can do at best."""
    return (
        f"{limits['name']}: {limits['bytes_per_s'] / 1e9:,.0f} GB/s read and written by a copy,"
        f" {limits['operations_per_s'] / 1e12:,.3g} TFLOP/s in a product of large matrices"
    )
