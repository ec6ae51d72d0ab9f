"""The tables of what was measured on a GPU: speeds, what callers get, and our steps."""

from collections.abc import Sequence
from typing import Any

from bench.scenarios.gpu_cases import BEAM_SIZE
from bench.tables import Table, shown

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
    limits, records = report["limits"], []
    for case in cases:
        step, work = case["step"], report["work"][case["shape"]]
        seconds = step["step_us"]["median"] / 1e6
        records.append(
            step
            | {
                "label": case["label"],
                "bytes": work["bytes"] / seconds / limits["bytes_per_s"],
                "products": 2
                * work["weights"]
                * step["rows"]
                / seconds
                / limits["operations_per_s"],
            }
        )
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
