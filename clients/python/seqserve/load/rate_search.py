"""The highest rate at which a limit holds, as MLPerf's server scenario asks for it.

Source: MLPerf Inference rules, server scenario: Poisson arrivals, a limit on a percentile of the
latency; what is not answered counts as late.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from seqserve.load import Answer, percentile
from seqserve.load.load import Load, Sent
from seqserve.load.result import Result, finite, warnings_of

SHARE = 0.99
"""Share of requests that must be answered within the limit."""
LEAST_REQUESTS = 100
"""Minimum of a probe, so that a hundredth of them is at least one."""
TRIES = 2
"""At a rate that breaks the limit: something else may have held the machine up."""
# Highest rate that broke the limit by the highest that held it.
_PRECISION = 1.05
# How far it goes from the first rate: a probe at a low one takes long.
_MOST_UP, _MOST_DOWN = 1e6, 32


@dataclass(frozen=True, slots=True)
class Probe:
    """A load at one rate."""

    rate_per_s: float
    p99_ms: float
    """Over all requests; infinite if more than a hundredth failed."""
    holds: bool


def p99_ms(answers: Sequence[Answer]) -> float:
    """Returns the 99th percentile of whole answers; a request that failed took for ever."""
    return 1e3 * percentile([answer.total_s for answer in answers], SHARE)


def highest_rate(probe: Callable[[float], Probe], first_per_s: float) -> list[Probe]:
    """Doubles a rate until it breaks the limit, or halves it until it holds, and then bisects.

    A rate that breaks the limit is tried again, and holds if it holds then. Returns all probes.
    """
    probes: list[Probe] = []

    def held(rate_per_s: float) -> bool:
        probes.extend(_tries(probe, rate_per_s))
        return probes[-1].holds

    low = high = first_per_s
    if held(first_per_s):
        while held(high := 2 * low):
            low = high
            if low >= first_per_s * _MOST_UP:
                return probes
    else:
        while not held(low := high / 2):
            high = low
            if low <= first_per_s / _MOST_DOWN:
                return probes
    while high / low > _PRECISION:
        middle = float(f"{math.sqrt(low * high):.4g}")
        if held(middle):
            low = middle
        else:
            high = middle
    return probes


def _tries(probe: Callable[[float], Probe], rate_per_s: float) -> Iterator[Probe]:
    for _ in range(TRIES):
        tried = probe(rate_per_s)
        yield tried
        if tried.holds:
            return


def best_of(probes: Sequence[Probe]) -> Probe | None:
    """Returns the probe at the highest rate below which, as far as was seen, all hold."""
    broken = broken_rate(probes)
    held = [probe for probe in probes if probe.holds and probe.rate_per_s < broken]
    return max(held, key=lambda probe: probe.rate_per_s, default=None)


def broken_rate(probes: Sequence[Probe]) -> float:
    """Returns the lowest rate that never held; infinite if all did."""
    held = {probe.rate_per_s for probe in probes if probe.holds}
    return min(
        (each.rate_per_s for each in probes if each.rate_per_s not in held), default=math.inf
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """A search for the highest rate, at its end."""

    result: Result
    """Result at the highest rate; with one request at a time if no rate keeps the limit."""
    answers: Sequence[Answer]
    """Answers of that load."""
    probes: Sequence[Probe]
    """In the order in which they were made."""
    unloaded_ms: float
    """The 99th percentile of one request at a time."""
    warnings: Sequence[str]
    """Doubts whether the lowest rate that broke the limit really breaks it."""

    @property
    def best(self) -> Probe | None:
        """The load at the highest rate; None where no rate holds."""
        return best_of(self.probes)


def search_rate(
    load: Load,
    *,
    send: Callable[[Load], Sent],
    measured: Callable[[Load, Sent], Result],
    probed: Callable[[Probe], None],
    limit_ms: float,
    first_per_s: float | None,
) -> RateSearch:
    """Looks for the highest rate at which the limit on the 99th percentile holds.

    It begins at ``first_per_s``, by default half of what is answered one at a time.
    """
    # A request that takes much longer has broken the limit; the next rate need not wait for it.
    load = replace(load, timeout_s=min(load.timeout_s, max(1.0, 4e-3 * limit_ms)))
    # If a lone request breaks the limit, every rate does.
    requests = min(load.requests or LEAST_REQUESTS, LEAST_REQUESTS)
    unloaded = replace(load, rate_per_s=None, in_flight=1, requests=requests)
    for _ in range(TRIES):
        sent = send(unloaded)
        unloaded_ms, answers = p99_ms(sent.answers), sent.answers
        if unloaded_ms <= limit_ms:
            break
    results = {0.0: measured(unloaded, sent)}

    def probe(rate_per_s: float) -> Probe:
        nonlocal answers
        seconds = load.seconds and max(load.seconds, LEAST_REQUESTS / rate_per_s)
        tried = replace(load, rate_per_s=rate_per_s, seconds=seconds, in_flight=None, warm_ups=0)
        sent = send(tried)
        late_ms = p99_ms(sent.answers)
        made = Probe(rate_per_s, late_ms, late_ms <= limit_ms)
        probed(made)
        results[rate_per_s] = measured(tried, sent)
        if made.holds:
            # Each rate that holds is higher than the one before.
            answers = sent.answers
        return made

    probes: list[Probe] = []
    if unloaded_ms <= limit_ms:
        served_per_s = results[0.0]["request_throughput"]
        probes = highest_rate(probe, first_per_s or float(f"{served_per_s / 2:.4g}"))
    best = best_of(probes)
    result = results[best.rate_per_s if best else 0.0] | {
        "limit_p99_ms": limit_ms,
        "lone_p99_ms": finite(unloaded_ms),
        "highest_request_rate": best.rate_per_s if best else None,
        "probes": [asdict(each) | {"p99_ms": finite(each.p99_ms)} for each in probes],
    }
    warnings: list[str] = []
    if not math.isinf(first := broken_rate(probes)):
        warnings = [f"at {first:,g} a second: {each}" for each in warnings_of(results[first])]
    return RateSearch(
        result=result, answers=answers, probes=probes, unloaded_ms=unloaded_ms, warnings=warnings
    )
