"""The result of a load, as JSON, with the keys of ``vllm bench serve`` where it has them.

Times are of the requests that were answered, in milliseconds, and count from when a request was
due. A search for the highest rate counts those that failed too.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from seqserve.load import REFUSALS, Answer, percentile
from seqserve.load.load import Sent

Result = dict[str, Any]

TIMES = {
    "ttft": "first token",
    "tpot": "a token after it",
    "itl": "between pieces",
    "e2el": "whole answer",
}
"""The measured times, by their name in the keys; all but the last need streams."""
GOODPUT_TIMES = ("ttft", "tpot", "e2el")
"""Times with one value a request."""
_MAX_DETAILS = 120


def times_of(answers: Sequence[Answer], *, streamed: bool) -> dict[str, list[float]]:
    """Returns the times of the requests that were answered, in milliseconds."""
    served = [answer for answer in answers if not answer.error]
    times = {name: [_times_ms(answer)[name] for answer in served] for name in GOODPUT_TIMES}
    if not streamed:
        return {"e2el": times["e2el"]}
    return {
        "ttft": times["ttft"],
        "tpot": [_times_ms(answer)["tpot"] for answer in served if answer.tokens > 1],
        "itl": [1e3 * gap_s for answer in served for gap_s in answer.gaps_s],
        "e2el": times["e2el"],
    }


def _times_ms(answer: Answer) -> dict[str, float]:
    spent_s, later = answer.total_s - answer.first_s, answer.tokens - 1
    return {
        "ttft": 1e3 * answer.first_s,
        "tpot": 1e3 * spent_s / later if later > 0 else 0.0,
        "e2el": 1e3 * answer.total_s,
    }


def result_of(
    sent: Sent,
    settings: Mapping[str, Any],
    *,
    seconds: float | None,
    streamed: bool,
    goodput: Mapping[str, float],
) -> Result:
    """Computes the result."""
    answers = sent.answers
    served = [answer for answer in answers if not answer.error]
    duration_s = max(
        [seconds or 0.0, *(answer.due_s + answer.total_s for answer in served), answers[-1].due_s]
    )
    duration_s = max(duration_s, 1e-9)
    tokens, source_tokens = (
        sum(getattr(answer, name) for answer in served) for name in ("tokens", "source_tokens")
    )
    failures = Counter(answer.error for answer in answers if answer.error)
    result = {
        **settings,
        "duration": duration_s,
        "completed": len(served),
        "failed": len(answers) - len(served),
        "refused": sum(failures[name] for name in REFUSALS),
        "total_input_tokens": source_tokens,
        "total_output_tokens": tokens,
        "request_throughput": len(served) / duration_s,
        "offered_throughput": len(answers) / duration_s,
        "output_throughput": tokens / duration_s,
        "total_token_throughput": (tokens + source_tokens) / duration_s,
    }
    if goodput:
        good = sum(_is_good(answer, goodput) for answer in served)
        result |= {"request_goodput": good / duration_s, "good_share": good / len(answers)}
    for name, values in times_of(answers, streamed=streamed).items():
        result |= _statistics(name, values)
    result |= _statistics("lateness", [1e3 * answer.late_s for answer in answers])
    result |= {
        "generator_cpu_us_per_request": 1e6 * sent.cpu_s / len(answers),
        "generator_cpu_share": sent.cpu_share,
        "error_counts": dict(failures),
        "error_examples": {name: _example(answers, name) for name in failures},
    }
    return result


def details_of(answers: Sequence[Answer]) -> Result:
    """Returns what is kept of every request, in the order in which they were due; seconds."""
    return {
        "start_times": [answer.due_s for answer in answers],
        "input_lens": [answer.source_tokens for answer in answers],
        "output_lens": [answer.tokens for answer in answers],
        "ttfts": [_finite(answer.first_s) for answer in answers],
        "itls": [answer.gaps_s for answer in answers],
        "e2els": [_finite(answer.total_s) for answer in answers],
        "errors": [answer.error for answer in answers],
    }


def _is_good(answer: Answer, limits_ms: Mapping[str, float]) -> bool:
    times_ms = _times_ms(answer)
    return all(times_ms[name] <= limit_ms for name, limit_ms in limits_ms.items())


def _statistics(name: str, values: Sequence[float]) -> dict[str, float | None]:
    names = ("mean", "median", "std", "p90", "p99", "max")
    if not values:
        return {f"{figure}_{name}_ms": None for figure in names}
    figures = (
        statistics.fmean(values),
        statistics.median(values),
        statistics.pstdev(values),
        percentile(values, 0.9),
        percentile(values, 0.99),
        max(values),
    )
    return {f"{figure}_{name}_ms": value for figure, value in zip(names, figures, strict=True)}


def _example(answers: Sequence[Answer], error: str) -> str:
    details = next(answer.details for answer in answers if answer.error == error)
    line = " ".join(details.split())
    return line if len(line) <= _MAX_DETAILS else f"{line[: _MAX_DETAILS - 1]}…"


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds


def warnings_of(result: Mapping[str, Any]) -> list[str]:
    """Returns what makes the times of a result doubtful; nothing if all is well."""
    advice = "--processes, or another machine, may help"
    warnings = []
    late_ms, whole_ms = result["p99_lateness_ms"], result["p99_e2el_ms"]
    if whole_ms is not None and late_ms > max(1.0, 0.1 * whole_ms):
        warnings.append(
            f"the load generator was late by {late_ms:,.1f} ms (p99), more than a tenth of the"
            f" answers' p99, and its delay is part of the times; {advice}"
        )
    if result["generator_cpu_share"] > 0.9:
        warnings.append(
            f"a process of the load generator was busy for {result['generator_cpu_share']:.0%} of"
            f" the time: it, not the server, may be the limit; {advice}"
        )
    return warnings


def finite(value: float | None) -> float | str | None:
    """Writes infinity as vLLM does, for JSON has none."""
    return "inf" if value is not None and math.isinf(value) else value
