"""``seqserve load``: sends load to a server and reports how long its answers take."""

from __future__ import annotations

from collections.abc import Sequence

from seqserve.command.load_options import HIDDEN, LoadOptions
from seqserve.command.load_run import check_server, find_rate, measured, result_in, send
from seqserve.files import replaceable, written_whole
from seqserve.load.answer import Answer, Caller
from seqserve.load.load import Load
from seqserve.load.page import page
from seqserve.load.rate_search import Probe
from seqserve.load.report import compared, differences, lines_of, probes_of
from seqserve.load.result import Result, details_of
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
    sent = send(options, load, caller)
    result = measured(options, load, sent)
    _write(options, result, sent.answers, lines_of(result))
    return 0 if result["completed"] else 1


def _find_rate(options: LoadOptions, load: Load, caller: Caller) -> int:
    limit_ms = options.p99 or 0.0
    search = find_rate(options, load, caller)
    report = [f"One at a time: p99 {search.lone_ms:,.1f} ms.", *probes_of(search.probes, limit_ms)]
    report += ["", *lines_of(search.result)]
    report += [f"Beware, {fault}." for fault in search.faults]
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
