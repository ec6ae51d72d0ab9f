"""``seqserve load``: sends load to a server and reports how long its answers take."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from seqserve import errors
from seqserve.arguments import DEFAULT_CONCURRENCY
from seqserve.command.document_files import SourceFile
from seqserve.command.load_options import DURATION_S, HIDDEN, Backend, LoadOptions
from seqserve.command.progress import Progress, is_terminal
from seqserve.files import label_of, read_text, replaceable, written_whole
from seqserve.load import Answer, Caller
from seqserve.load.arrivals import SENTENCES, moments_of, texts_of
from seqserve.load.load import Load, Sent, send
from seqserve.load.page import page
from seqserve.load.rate_search import Probe, RateSearch, search_rate
from seqserve.load.report import compared, differences, lines_of, probes_of
from seqserve.load.result import Result, details_of, finite, result_of
from seqserve.options import flag_of, parse
from seqserve.output import json_line

_ABOUT = """\
Sends load to a server and reports how long its answers take.

Three ways to send:
  --max-concurrency N   closed loop: always N requests in flight; shows the highest throughput
  --request-rate R      open loop: R requests a second at random times, as from users, however slow
                        the answers are; shows the times at that load. With --max-concurrency too,
                        at most N are in flight, and the time of the others runs while they wait
  --trace FILE          open loop: at the times of a file, a number of seconds in each line
Without any of them it is a closed loop of 32; without --duration and --num-prompts it takes ten
seconds.

--find-rate --p99 50 searches for the highest rate at which 99 of 100 requests are answered within
50 ms. Each rate runs for --duration and for at least 100 requests; a failed request counts as late.

Times start when a request is due, so they include a wait before it is sent. Requests are sent once
and never retried. A time to the first token needs --stream. "generator late" is the delay of this
command itself: if it is not small compared with the times, use --processes. A server gives one
client only a share of its queue; `seqserve serve --caller-share 1` gives this command all of it.

Options and keys of --save-result have the names of `vllm bench serve` if it has them.
Options of `seqserve generate` for search, sampling and lengths apply too, such as --beam-size;
`seqserve generate --help` explains them.

examples:
  seqserve load --request-rate 100 --duration 30 --stream --html load.html
  seqserve load --find-rate --p99 50 --dataset-path sentences.txt
  seqserve load --max-concurrency 64 --num-prompts 5000 --save-result new.json
  seqserve load --backend libretranslate --target localhost:5000 --target-language de
  seqserve load --backend open-inference --target triton:8001 --model en-de --input-name text
  seqserve load --compare old.json new.json"""


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status, which is 1 if nothing was answered."""
    options = parse(LoadOptions, argv, prog="seqserve load", description=_ABOUT, hidden=HIDDEN)
    if options.compare:
        return _compare(options)
    for name in ("save_result", "html"):
        if path := getattr(options, name):
            replaceable(path, option=flag_of(name))
    load = load_of(options)
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
    report = [f"One at a time: p99 {search.unloaded_ms:,.1f} ms."]
    report += [*probes_of(search.probes, limit_ms), "", *lines_of(search.result)]
    report += [f"Warning: {warning}." for warning in search.warnings]
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
    with closing(Progress(sys.stderr, "requests", is_shown=is_shown, total=load.total)) as progress:
        sent = send(load, caller, options.processes, progress.advance)
    if not sent.answers:
        raise errors.OptionError("--duration: no request came within it")
    return sent


def measured(options: LoadOptions, load: Load, sent: Sent) -> Result:
    """Computes the result of a load that was sent."""
    return result_of(
        sent,
        facts_of(options, load),
        seconds=load.seconds,
        streamed=options.stream,
        goodput=options.limits_ms(),
    )


def find_rate(options: LoadOptions, load: Load, caller: Caller) -> RateSearch:
    """Looks for the highest rate at which ``--p99`` holds."""

    def probed(probe: Probe) -> None:
        if is_terminal(sys.stderr):
            report = f"{probe.rate_per_s:,g} a second: p99 {probe.p99_ms:,.1f} ms"
            print(f"seqserve: {report}", file=sys.stderr)

    return search_rate(
        load,
        send=lambda tried: send_load(options, tried, caller),
        measured=lambda tried, sent: measured(options, tried, sent),
        probed=probed,
        limit_ms=options.p99 or 0.0,
        first_per_s=options.request_rate,
    )


def result_in(path: Path, option: str) -> Mapping[str, Any]:
    """Reads a file of ``--save-result``."""
    name = label_of(path, option)
    try:
        facts = json.loads(read_text(path, option))
    except ValueError:
        raise errors.OptionError(f"{name}: is not JSON") from None
    if not isinstance(facts, dict) or "request_throughput" not in facts:
        raise errors.OptionError(f"{name}: is not a result of a load")
    return facts


def load_of(options: LoadOptions) -> Load:
    """Reads the files, and returns what is sent."""
    trace_s = None
    if options.trace is not None:
        with closing(SourceFile(options.trace, option="--trace")) as lines:
            trace_s = moments_of(lines, lines.name)
    seconds = options.duration
    if seconds is None and options.num_prompts is None and trace_s is None:
        seconds = DURATION_S
    is_open = options.request_rate is not None or trace_s is not None
    in_flight = options.max_concurrency
    return Load(
        sources=_texts(options),
        rate_per_s=options.request_rate,
        burstiness=options.burstiness,
        trace_s=trace_s,
        in_flight=in_flight if is_open else in_flight or DEFAULT_CONCURRENCY,
        requests=options.num_prompts,
        seconds=seconds,
        timeout_s=options.settings()["timeout_s"],
        warm_ups=options.num_warmups,
        seed=options.seed,
    )


def _texts(options: LoadOptions) -> Sequence[str]:
    if options.dataset_path is None:
        return SENTENCES
    with closing(SourceFile(options.dataset_path, option="--dataset-path")) as lines:
        is_json = options.dataset_path.suffix == ".jsonl"
        return texts_of(lines, lines.name, is_json=is_json)


def facts_of(options: LoadOptions, load: Load) -> Result:
    """Returns what a result says of the load."""
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "backend": options.backend.value,
        "target": options.address,
        "model_id": options.model,
        "options": {
            name: value.value if isinstance(value, Enum) else value
            for name, value in options.call().items()
            if value is not None
        },
        "stream": options.stream,
        "dataset_path": str(options.dataset_path) if options.dataset_path else None,
        "request_rate": None if load.is_closed else finite(load.rate_per_s),
        "burstiness": load.burstiness,
        "max_concurrency": load.in_flight,
        "trace": str(options.trace) if options.trace else None,
        "num_prompts": load.requests,
        "duration_limit": load.seconds,
        "seed": load.seed,
        "processes": options.processes,
        "connections": options.connections,
        "goodput": options.limits_ms(),
    }
