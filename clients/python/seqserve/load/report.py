"""The result of a load for a terminal, and two results side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from seqserve.load.rate_search import Probe, best_of
from seqserve.load.result import TIMES, warnings_of
from seqserve.output import aligned

_TIMES = {**TIMES, "lateness": "generator late"}
_COMPARED = {
    "request_throughput": "answers a second",
    "request_goodput": "good answers a second",
    "output_throughput": "tokens a second",
    **{
        f"{figure}_{name}_ms": f"{label}, {figure.replace('median', 'p50')}, ms"
        for name, label in TIMES.items()
        for figure in ("mean", "median", "p99")
    },
    "completed": "answered",
    "refused": "refused",
    "failed": "failed or refused",
    "p99_lateness_ms": "generator late, p99, ms",
}


def lines_of(result: Mapping[str, Any]) -> list[str]:
    """Lays out a result: counts, times, errors, doubts."""
    failed = result["failed"] - result["refused"]
    sent = result["completed"] + result["failed"]
    rows = [
        *_load(result),
        (
            "requests",
            f"{sent:,} in {result['duration']:,.1f} s: {result['offered_throughput']:,.1f}/s",
        ),
        ("answered", f"{result['completed']:,}: {result['request_throughput']:,.1f}/s"),
        ("refused", f"{result['refused']:,}"),
        ("failed", f"{failed:,}"),
    ]
    if result["total_output_tokens"]:
        tokens = f"{result['total_output_tokens']:,}: {result['output_throughput']:,.1f}/s"
        rows.append(("tokens", tokens))
    if "request_goodput" in result:
        limits = ", ".join(f"{name} {limit:g} ms" for name, limit in result["goodput"].items())
        good = f"{result['request_goodput']:,.1f}/s, {result['good_share']:.1%} of all: {limits}"
        rows.append(("good", good))
    cost = f"{result['generator_cpu_us_per_request']:,.0f} µs of CPU a request"
    rows.append(("generator", f"{cost}, {result['generator_cpu_share']:.0%} of a core"))
    lines = [*aligned(rows), "", *_times(result)]
    if result["failed"] and result["completed"]:
        share = result["completed"] / sent
        lines.append(f"Only {share:.1%} of the requests were answered; the times are theirs.")
    lines += _errors(result)
    return [*lines, *(line for each in warnings_of(result) for line in ("", f"Warning: {each}."))]


def _load(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    if result.get("trace"):
        return [("load", f"open loop, the moments of {result['trace']}")]
    if (rate := result.get("request_rate")) is not None:
        pace = "all requests at once" if rate == "inf" else f"{rate:,.4g} requests a second"
        return [("load", f"open loop, {pace}")]
    if result.get("max_concurrency"):
        return [("load", f"closed loop, {result['max_concurrency']:,} requests in flight")]
    return []


def _times(result: Mapping[str, Any]) -> list[str]:
    figures = ("mean", "median", "p90", "p99", "max")
    rows = [("ms", "mean", "p50", "p90", "p99", "max")]
    for name, label in _TIMES.items():
        # In a closed loop nothing can be late.
        if result.get(f"max_{name}_ms"):
            values = (_number(result[f"{figure}_{name}_ms"]) for figure in figures)
            rows.append((label, *values))  # type: ignore[arg-type]
    return aligned(rows, right=range(1, len(rows[0])))


def _errors(result: Mapping[str, Any]) -> list[str]:
    if not result["error_counts"]:
        return []
    rows = [
        (name, f"{count:,}", result["error_examples"][name])
        for name, count in sorted(result["error_counts"].items(), key=lambda pair: -pair[1])
    ]
    return ["", *aligned([("ERROR", "REQUESTS", "FOR INSTANCE"), *rows], right=(1,))]


def probes_of(probes: Sequence[Probe], limit_ms: float) -> list[str]:
    """Lays out a search for the highest rate, which may have ended before the first."""
    rows = [
        (f"{probe.rate_per_s:,.1f}", _number(probe.p99_ms), "yes" if probe.holds else "no")
        for probe in sorted(probes, key=lambda probe: probe.rate_per_s)
    ]
    heads = ("REQUESTS A SECOND", "P99, MS", f"WITHIN {limit_ms:g} MS")
    best = best_of(probes)
    highest = (
        f"No rate holds p99 within {limit_ms:g} ms."
        if best is None
        else f"Highest rate: {best.rate_per_s:,.1f} requests a second, p99 {best.p99_ms:,.1f} ms."
    )
    return [*(aligned([heads, *rows], right=(0, 1)) if rows else ()), "", highest]


def compared(
    first: Mapping[str, Any], second: Mapping[str, Any], names: Sequence[str]
) -> list[str]:
    """Lays out two results, and the second by the first."""
    rows = [("", *names, "RATIO")]
    for key, label in _COMPARED.items():
        before, after = first.get(key), second.get(key)
        if not isinstance(before, int | float) or not isinstance(after, int | float):
            continue
        ratio = f"{after / before:.2f}" if before else ""
        rows.append((label, _number(before), _number(after), ratio))
    return aligned(rows, right=(1, 2, 3))


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], names: Sequence[str]
) -> list[str]:
    """Returns which settings of two results differ, except for their place and day."""
    keys = [key for key in first if key in second and key not in ("date", "target")]
    settings = keys[: keys.index("duration")] if "duration" in keys else []
    return [
        f"{key}: {first[key]} in {names[0]}, {second[key]} in {names[1]}"
        for key in settings
        if first[key] != second[key]
    ]


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
