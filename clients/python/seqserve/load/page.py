"""A page of HTML that shows a load and needs nothing else: no script, no font, no network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from seqserve.load.answer import Answer
from seqserve.load.chart import Axis, Series, chart
from seqserve.load.latency import percentile
from seqserve.load.rate_search import Probe
from seqserve.load.result import TIMES, times_of
from seqserve.palette import style_sheet

_MAX_POINTS = 3000
_COLUMNS = 60
_LEAST_A_COLUMN = 20
# Of a percentile p, at -log10(1 - p): each step to the right is ten times as rare.
_PERCENTILES = ((0.0, "0"), (0.301, "p50"), (1.0, "p90"), (2.0, "p99"), (3.0, "p99.9"))
_STYLE = """
body { margin: 0 auto; max-width: 46rem; padding: 1rem; background: var(--ground);
  color: var(--ink); font-family: system-ui, sans-serif; }
pre, figure { background: var(--surface); border: 1px solid var(--line); border-radius: 6px;
  margin: 1rem 0; padding: .8rem; white-space: pre-wrap; }
svg { display: block; width: 100%; }
h1 { font-size: 1.3rem; }
p { color: var(--faint); }
"""


def page(
    result: Mapping[str, Any],
    answers: Sequence[Answer],
    report: Sequence[str],
    probes: Sequence[Probe] = (),
) -> str:
    """Draws the page.

    Args:
        result: Of the load.
        answers: All requests of it.
        report: Lines that say the same in words.
        probes: Of a search for the highest rate.
    """
    settings = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
        for key, value in result.items()
        if key in ("backend", "target", "model_id", "request_rate", "max_concurrency", "date")
        and value is not None
    )
    charts = [_over_time(result, answers), _percentiles(result, answers), _rates(result, answers)]
    if probes:
        charts.insert(0, _search(result, probes))
    figures = "\n".join(f"<figure>{svg}</figure>" for svg in map("\n".join, charts))
    return f"""\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Load of {escape(str(result["target"]))}</title>
<style>{style_sheet()}{_STYLE}</style>
<h1>Load of {escape(str(result["target"]))}</h1>
<p>{escape(settings)}</p>
<pre>{escape(chr(10).join(report))}</pre>
{figures}
</html>
"""


def _over_time(result: Mapping[str, Any], answers: Sequence[Answer]) -> Iterator[str]:
    step = math.ceil(len(answers) / _MAX_POINTS)
    served = [answer for answer in answers[::step] if not answer.error]
    series = [("whole answer", [(answer.due_s, 1e3 * answer.total_s) for answer in served])]
    if result["stream"]:
        first = [(answer.due_s, 1e3 * answer.first_s) for answer in served]
        series.append(("first token", first))
    return chart(
        "Time from when a request was due",
        Axis("seconds from the beginning", 0.0, result["duration"]),
        _log_axis("ms", [value for _, points in series for _, value in points]),
        [Series(name=name, points=points, is_line=False) for name, points in series],
    )


def _percentiles(result: Mapping[str, Any], answers: Sequence[Answer]) -> Iterator[str]:
    series = []
    times = times_of(answers, streamed=result["stream"])
    for name in ("e2el", "ttft", "itl"):
        if values := sorted(times.get(name, [])):
            series.append(Series(name=TIMES[name], points=_curve(values)))
    ends = [value for each in series for _, value in each.points]
    return chart(
        "How long the slowest take",
        Axis("share of the answers that took no longer", 0.0, 3.0, ticks=_PERCENTILES),
        _log_axis("ms", ends),
        series,
    )


def _curve(values: Sequence[float]) -> list[tuple[float, float]]:
    last = min(3.0, math.log10(len(values))) if len(values) > 1 else 0.0
    rarities = [last * number / _COLUMNS for number in range(_COLUMNS + 1)]
    return [(rarity, percentile(values, 1 - 10**-rarity)) for rarity in rarities]


def _rates(result: Mapping[str, Any], answers: Sequence[Answer]) -> Iterator[str]:
    columns = max(1, min(_COLUMNS, len(answers) // _LEAST_A_COLUMN))
    width_s = result["duration"] / columns
    # The last one has what came at the very end.
    counts = {name: [0] * (columns + 1) for name in ("due", "answered", "failed")}
    for answer in answers:
        counts["due"][int(answer.due_s / width_s)] += 1
        if answer.error:
            counts["failed"][int(answer.due_s / width_s)] += 1
        else:
            counts["answered"][int((answer.due_s + answer.total_s) / width_s)] += 1
    if not result["failed"]:
        del counts["failed"]
    highest = max(map(max, counts.values())) / width_s
    return chart(
        "Requests a second",
        Axis("seconds from the beginning", 0.0, result["duration"]),
        Axis("1/s", 0.0, highest),
        [
            Series(
                name=name,
                points=[
                    ((at + 0.5) * width_s, count / width_s)
                    for at, count in enumerate(numbers[:columns])
                ],
            )
            for name, numbers in counts.items()
        ],
    )


def _search(result: Mapping[str, Any], probes: Sequence[Probe]) -> Iterator[str]:
    ordered = sorted(probes, key=lambda probe: probe.rate_per_s)
    # A probe in which too many failed stands at the upper end.
    top = max([result["limit_p99_ms"], *(p.p99_ms for p in ordered if math.isfinite(p.p99_ms))])
    points = [(probe.rate_per_s, min(probe.p99_ms, 2 * top)) for probe in ordered]
    return chart(
        f"p99 by rate, and the limit of {result['limit_p99_ms']:g} ms",
        _log_axis("requests a second", [rate for rate, _ in points]),
        _log_axis("ms", [result["limit_p99_ms"], *(value for _, value in points)]),
        [Series(name="p99", points=points)],
        limit=result["limit_p99_ms"],
    )


def _log_axis(label: str, values: Sequence[float]) -> Axis:
    seen = [value for value in values if value > 0] or [1.0]
    return Axis(label, 0.9 * min(seen), 1.1 * max(seen), is_log=True)
