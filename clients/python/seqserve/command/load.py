"""``seqserve load``: sends load to a server and reports how long its answers take."""

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
from seqserve.command.load_options import HIDDEN, Backend, LoadOptions, finite
from seqserve.command.progress import Progress, is_terminal
from seqserve.files import label_of, replaceable, written_whole
from seqserve.load.answer import Answer, Caller
from seqserve.load.load import Load, Sent, send
from seqserve.load.page import page
from seqserve.load.rate_search import (
    LEAST_REQUESTS,
    TRIES,
    Probe,
    best_of,
    broken_rate,
    highest_rate,
    p99_ms,
)
from seqserve.load.report import compared, differences, lines_of, probes_of
from seqserve.load.result import Result, details_of, result_of, warnings_of
from seqserve.options import flag_of, parse
from seqserve.output import json_line

_EPILOG = """\
Three ways to send:
  --max-concurrency N   closed loop: always N requests under way; shows the most a server can do
  --request-rate R      open loop: R requests a second come at random, as users do, however slow the
                        answers are; shows the times at that load. With --max-concurrency too, at
                        most N are under way, and the others wait while their time runs
  --trace FILE          open loop: the moments of a file, a number of seconds in each line
Without any of them it is a closed loop of 32, without --duration and --num-prompts ten seconds.

--find-rate --p99 50 looks for the highest rate at which 99 of 100 requests are answered within
50 ms. Each rate is tried for --duration, and longer if it takes longer for 100 requests to come; a
request that fails counts as late.

Times count from the moment at which a request was due, so that a wait before its sending is not
lost. Requests are sent once, never again. A time to the first token needs --stream. "generator
late" is the delay of this command itself: if it is not small beside the times, use --processes.
A server refuses one client sooner than many: `seqserve serve --caller-share 1` gives this one all.

Names of options and of the keys in --save-result are those of `vllm bench serve` where it has them.
Options of `seqserve generate` for search, sampling and lengths apply too, such as --beam-size;
`seqserve generate --help` explains them.

examples:
  seqserve load
  seqserve load --request-rate 100 --duration 30 --stream --html load.html
  seqserve load --request-rate 50 --burstiness 0.3 --goodput e2el:100
  seqserve load --find-rate --p99 50 --dataset-path sentences.txt
  seqserve load --max-concurrency 64 --num-prompts 5000 --save-result new.json
  seqserve load --backend libretranslate --target localhost:5000 --target-language de
  seqserve load --backend open-inference --target triton:8001 --model en-de --input-name text
  seqserve load --compare old.json new.json"""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status, which is 1 if nothing was answered."""
    options = parse(
        LoadOptions,
        argv,
        prog="seqserve load",
        description="Sends load to a server and reports how long its answers take.",
        epilog=_EPILOG,
        hidden=HIDDEN,
    )
    if options.compare:
        return _compare(options)
    for name in ("save_result", "html"):
        if path := getattr(options, name):
            replaceable(path, option=flag_of(name))
    load = options.load()
    caller = options.caller()
    check_server(options, load)
    if options.find_rate:
        return _find_rate(options, load, caller)
    sent = send_load(options, load, caller)
    result = measured(options, load, sent)
    _write(options, result, sent.answers, lines_of(result))
    return 0 if result["completed"] else 1


def _find_rate(options: LoadOptions, load: Load, caller: Caller) -> int:
    limit_ms = options.p99 or 0.0
    search = find_rate(options, load, caller)
    report = [
        f"One at a time: p99 {search.unloaded_ms:,.1f} ms.",
        *probes_of(search.probes, limit_ms),
    ]
    report += ["", *lines_of(search.result)]
    report += [f"Beware, {warning}." for warning in search.warnings]
    _write(options, search.result, search.answers, report, search.probes)
    return 0 if search.best else 1


def _write(
    options: LoadOptions,
    result: Result,
    answers: Sequence[Answer],
    report: Sequence[str],
    probes: Sequence[Probe] = (),
) -> None:
    print(json_line(result) if options.json else "\n".join(report))
    if options.save_result is not None:
        kept = result | (details_of(answers) if options.save_detailed else {})
        with written_whole(options.save_result, "w", option="--save-result") as file:
            file.write(json_line(kept) + "\n")
    if options.html is not None:
        with written_whole(options.html, "w", option="--html") as file:
            file.write(page(result, answers, report, probes))


def _compare(options: LoadOptions) -> int:
    first, second = (result_in(path, "--compare") for path in options.results)
    names = [path.stem for path in options.results]
    if names[0] == names[1]:
        names = [str(path) for path in options.results]
    lines = compared(first, second, names)
    print(*lines, sep="\n")
    if differing := differences(first, second, names):
        print("", "The loads differ:", *differing, sep="\n")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """A search for the highest rate, at its end."""

    result: Result
    """Of the load at the highest rate; of one request at a time where no rate holds."""
    answers: Sequence[Answer]
    """Of that load."""
    probes: Sequence[Probe]
    """In the order in which they were made."""
    unloaded_ms: float
    """The 99th percentile of one request at a time."""
    warnings: Sequence[str]
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


def send_load(options: LoadOptions, load: Load, caller: Caller) -> Sent:
    """Sends a load and shows its progress."""
    is_shown = is_terminal(sys.stderr)
    progress = Progress(sys.stderr, "requests", is_shown=is_shown, total=load.total)
    with closing(progress):
        sent = send(load, caller, options.processes, progress.advance)
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
    unloaded = replace(load, rate_per_s=None, in_flight=1, requests=requests)
    for _ in range(TRIES):
        lone = send_load(options, unloaded, caller)
        unloaded_ms, answers = p99_ms(lone.answers), lone.answers
        if unloaded_ms <= limit_ms:
            break
    results = {0.0: measured(options, unloaded, lone)}

    def probe(rate_per_s: float) -> Probe:
        nonlocal answers
        seconds = load.seconds and max(load.seconds, LEAST_REQUESTS / rate_per_s)
        tried = replace(load, rate_per_s=rate_per_s, seconds=seconds, in_flight=None, warm_ups=0)
        sent = send_load(options, tried, caller)
        late_ms = p99_ms(sent.answers)
        if is_terminal(sys.stderr):
            print(f"seqserve: {rate_per_s:,g} a second: p99 {late_ms:,.1f} ms", file=sys.stderr)
        results[rate_per_s] = measured(options, tried, sent)
        if holds := late_ms <= limit_ms:
            # Each rate that holds is higher than the one before.
            answers = sent.answers
        return Probe(rate_per_s, late_ms, holds)

    probes: list[Probe] = []
    if unloaded_ms <= limit_ms:
        served_per_s = results[0.0]["request_throughput"]
        probes = highest_rate(probe, options.request_rate or float(f"{served_per_s / 2:.4g}"))
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


def result_in(path: Path, option: str) -> Mapping[str, Any]:
    """Reads a file of ``--save-result``."""
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
