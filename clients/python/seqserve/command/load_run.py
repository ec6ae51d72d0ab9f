"""A load that a command sends: the call before it, its progress, the search for a rate."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from seqserve import errors
from seqserve.command.load_options import Backend, LoadOptions, finite
from seqserve.command.progress import Progress, is_terminal
from seqserve.files import label_of
from seqserve.load import generator
from seqserve.load.answer import Answer, Caller
from seqserve.load.generator import Sent
from seqserve.load.load import Load
from seqserve.load.rate_search import (
    LEAST_REQUESTS,
    TRIES,
    Probe,
    best_of,
    broken_rate,
    highest_rate,
    p99_ms,
)
from seqserve.load.result import Result, faults_of, result_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """A search for the highest rate, at its end."""

    result: Result
    """Of the load at the highest rate; of one request at a time where no rate holds."""
    answers: Sequence[Answer]
    """Of that load."""
    probes: Sequence[Probe]
    """In the order in which they were made."""
    lone_ms: float
    """The 99th percentile of one request at a time."""
    faults: Sequence[str]
    """What makes it doubtful that the lowest rate that broke the limit breaks it."""

    @property
    def best(self) -> Probe | None:
        """The load at the highest rate; None where no rate holds."""
        return best_of(self.probes)


def check_server(options: LoadOptions, load: Load) -> None:
    """Makes one call as other commands make it, whose error tells why no load can be sent."""
    if options.backend is Backend.GRPC:
        with replace(options, target=options.address).connect() as client:
            client.generate(load.sources[0], **options.call())
        return

    async def call() -> None:
        # Another than the one for the load, which other processes may get: it is not connected yet.
        async with options.caller() as caller:
            reply = await caller.send(load.sources[0], load.timeout_s)
        if reply.error == "UNAVAILABLE":
            raise errors.Unreachable(reply.error, reply.details)
        if reply.error:
            raise errors.CallError(reply.error, reply.details)

    asyncio.run(call())


def send(options: LoadOptions, load: Load, caller: Caller) -> Sent:
    """Sends a load and shows its progress.

    Raises:
        OptionError: No request came.
    """
    is_shown = is_terminal(sys.stderr)
    progress = Progress(sys.stderr, "requests", is_shown=is_shown, total=load.total)
    with closing(progress):
        sent = generator.send(load, caller, options.processes, progress.advance)
    if not sent.answers:
        raise errors.OptionError("--duration: no request came within it")
    return sent


def measured(options: LoadOptions, load: Load, sent: Sent) -> Result:
    """Computes the result of a load that was sent."""
    return result_of(
        sent,
        options.facts(load),
        seconds=load.seconds,
        streamed=options.stream,
        goodput=options.limits_ms(),
    )


def find_rate(options: LoadOptions, load: Load, caller: Caller) -> RateSearch:
    """Looks for the highest rate at which ``--p99`` holds."""
    limit_ms = options.p99 or 0.0
    # What takes much longer has broken the limit: the next rate need not wait for it.
    load = replace(load, timeout_s=min(load.timeout_s, max(1.0, 4e-3 * limit_ms)))
    # What breaks the limit even alone breaks it at every rate.
    requests = min(load.requests or LEAST_REQUESTS, LEAST_REQUESTS)
    lone_load = replace(load, rate_per_s=None, in_flight=1, requests=requests)
    for _ in range(TRIES):
        lone = send(options, lone_load, caller)
        lone_ms, answers = p99_ms(lone.answers), lone.answers
        if lone_ms <= limit_ms:
            break
    results = {0.0: measured(options, lone_load, lone)}

    def probe(rate_per_s: float) -> Probe:
        nonlocal answers
        seconds = load.seconds and max(load.seconds, LEAST_REQUESTS / rate_per_s)
        tried = replace(load, rate_per_s=rate_per_s, seconds=seconds, in_flight=None, warm_ups=0)
        sent = send(options, tried, caller)
        late_ms = p99_ms(sent.answers)
        if is_terminal(sys.stderr):
            print(f"seqserve: {rate_per_s:,g} a second: p99 {late_ms:,.1f} ms", file=sys.stderr)
        results[rate_per_s] = measured(options, tried, sent)
        if holds := late_ms <= limit_ms:
            # Each rate that holds is higher than the one before.
            answers = sent.answers
        return Probe(rate_per_s, late_ms, holds)

    probes: list[Probe] = []
    if lone_ms <= limit_ms:
        served_per_s = results[0.0]["request_throughput"]
        probes = highest_rate(probe, options.request_rate or float(f"{served_per_s / 2:.4g}"))
    best = best_of(probes)
    result = results[best.rate_per_s if best else 0.0] | {
        "limit_p99_ms": limit_ms,
        "lone_p99_ms": finite(lone_ms),
        "highest_request_rate": best.rate_per_s if best else None,
        "probes": [asdict(each) | {"p99_ms": finite(each.p99_ms)} for each in probes],
    }
    faults: list[str] = []
    if not math.isinf(first := broken_rate(probes)):
        faults = [f"at {first:,g} a second: {fault}" for fault in faults_of(results[first])]
    return RateSearch(result=result, answers=answers, probes=probes, lone_ms=lone_ms, faults=faults)


def result_in(path: Path, option: str) -> Mapping[str, Any]:
    """Reads a file of ``--save-result``.

    Raises:
        OptionError: It is none.
    """
    name = label_of(path, option)
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.OptionError(f"{name}: {error.strerror}") from None
    except ValueError:
        raise errors.OptionError(f"{name}: is not JSON") from None
    if not isinstance(facts, dict) or "request_throughput" not in facts:
        raise errors.OptionError(f"{name}: is no result of a load")
    return facts
