"""Compares with Marian on a model of Firefox: English to Portuguese, the tiny student.

Text goes in and comes out, in seqserve's engine and in Marian, each with its own tokenizer. Speeds
are those of source tokens, as the makers of such models give them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Protocol

from bench import online
from bench.comparison import spread
from bench.native_marian import MarianPeer, Student
from bench.provenance import print_signature
from bench.sentences import everyday, news
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.engine.offline import Offline
from seqserve_server.front.cores import available_cores

_ROWS = 32
_SENTENCES = 96
"""Of a turn on each core where many are in flight: full batches."""
_ALONE = 32
"""Of a turn where one is."""
BASE = "Marian int8"
"""The server that rates are measured by."""


class _Engine(Protocol):
    """Translates texts with a number of rows in flight."""

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Gives the translations in order."""

    def close(self) -> None:
        """Gives back threads and memory."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How engines decode."""

    precision: str
    has_shortlist: bool

    @property
    def name(self) -> str:
        return self.precision + " with shortlist" * self.has_shortlist


_WAYS = [_Way("int8", True), _Way("int8", False), _Way("fp32", False)]


class _Seqserve:
    """This project's engine without gRPC, one thread a worker."""

    def __init__(self, artifact: Path, has_shortlist: bool, rows: int, workers: int) -> None:
        self._engine = Offline(artifact, workers=workers, slots=rows * workers, can_score=False)
        # Marian neither writes the unknown token nor computes scores.
        self._options = DecodingOptions(
            max_decoding_length=self._engine.manifest.limits.max_target_length,
            suppressed=((self._engine.tokenizer.unk_id,),),
            shortlist=has_shortlist,
            return_scores=False,
        )

    def translate(self, texts: Sequence[str]) -> list[str]:
        sources = [self._engine.encode(text) for text in texts]
        answers = self._engine.decode(sources, self._options)
        return [self._engine.tokenizer.decode(answer.best.token_ids) for answer in answers]

    def close(self) -> None:
        self._engine.close()


def measure(rounds: int, plan: online.Plan) -> dict[str, Any]:
    """Measures engines in turn, then servers, and prints each table.

    Args:
        rounds: Turns of each engine.
        plan: How servers are measured; rates are shares of what Marian's can answer.

    Raises:
        SystemExit: Marian's environment is missing, or an import failed.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        student = Student.prepare("enpt", folder)
        artifacts = {precision: _import(student, folder, precision) for precision in student.models}
        texts = {"everyday": everyday(), "news": news()}
        tables = []
        for name in texts:
            for layout in _layouts():
                tables.append(_compare(student, artifacts, name, texts[name], layout, rounds))
                print_table(tables[-1])
        servers = _serve(student, artifacts["int8"], plan, folder)
        online.print_table(servers)
        return {"engines": tables, "servers": servers}


def _layouts() -> list[tuple[int, int]]:
    """Lists cores and rows on each."""
    return list(dict.fromkeys([(1, _ROWS), (available_cores(), _ROWS), (1, 1)]))


def _import(student: Student, repository: Path, precision: str) -> Path:
    """Runs ``seqserve import``."""
    data = repository / "sentences.txt"
    data.write_text("\n".join(everyday()), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "seqserve_import.command", str(student.folder)),
        *("--name", precision, "--precision", precision, "--data", str(data)),
        *("--model-repository", str(repository), "--sentences", "120"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return repository / precision / "1"


def _compare(
    student: Student,
    artifacts: dict[str, Path],
    name: str,
    sentences: list[str],
    layout: tuple[int, int],
    rounds: int,
) -> dict[str, Any]:
    """Lets both engines decode one text in every way, in turn."""
    cores, rows = layout
    texts = list(islice(cycle(sentences), _SENTENCES * cores if rows > 1 else _ALONE))
    tokenizer = Tokenizer.load(artifacts["fp32"] / "tokenizer.json")
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    with _engines(student, artifacts, cores, rows) as engines:
        outputs = {key: engine.translate(texts) for key, engine in engines.items()}
        seconds: dict[tuple[str, str], list[float]] = {key: [] for key in engines}
        for _ in range(rounds):
            for key, engine in engines.items():
                seconds[key].append(_timed(engine, texts, at_once=rows > 1))
    whole = outputs["Marian", "fp32"]
    return {
        "text": name,
        "cores": cores,
        "rows": rows,
        "ways": [
            {
                "name": way.name,
                **{
                    engine: {
                        "tokens_per_s": tokens / statistics.median(seconds[engine, way.name]),
                        "equal_share": _equal_share(whole, outputs[engine, way.name]),
                    }
                    for engine in ("seqserve", "Marian")
                },
                "ratio": spread(
                    [
                        theirs / ours
                        for ours, theirs in zip(
                            seconds["seqserve", way.name], seconds["Marian", way.name], strict=True
                        )
                    ]
                ),
            }
            for way in _WAYS
        ],
    }


@contextmanager
def _engines(
    student: Student, artifacts: dict[str, Path], cores: int, rows: int
) -> Iterator[dict[tuple[str, str], _Engine]]:
    """Gives the engines by their names and ways."""
    with ExitStack() as stack:
        found: dict[tuple[str, str], _Engine] = {}
        for way in _WAYS:
            options = student.options(way.precision, has_shortlist=way.has_shortlist, rows=rows)
            build: dict[str, Callable[[], _Engine]] = {
                "seqserve": lambda way=way: _Seqserve(  # type: ignore[misc]
                    artifacts[way.precision], way.has_shortlist, rows, cores
                ),
                "Marian": lambda options=options: MarianPeer(options, cores),  # type: ignore[misc]
            }
            for engine, make in build.items():
                found[engine, way.name] = stack.enter_context(closing(make()))
        yield found


def _timed(engine: _Engine, texts: list[str], *, at_once: bool) -> float:
    began_s = time.perf_counter()
    for batch in [texts] if at_once else [[text] for text in texts]:
        engine.translate(batch)
    return time.perf_counter() - began_s


def _equal_share(ours: Sequence[str], theirs: Sequence[str]) -> float:
    return statistics.fmean(our == their for our, their in zip(ours, theirs, strict=True))


def _serve(student: Student, artifact: Path, plan: online.Plan, folder: Path) -> dict[str, Any]:
    """Compares servers on everyday sentences, in eight bits with the shortlist."""
    options = student.options("int8", has_shortlist=True, rows=_ROWS)
    delay = ["--delay-ms", str(plan.delay_ms)]
    servers = [
        online.our_server(artifact, folder),
        (BASE, "bench.marian_batcher", [*delay, "--", *options]),
    ]
    series = online.take_turns(servers, everyday(), plan, folder)
    return online.report_of("Firefox's English to Portuguese", series, plan)


def print_table(table: dict[str, Any]) -> None:
    """Prints a table of engines."""
    flight = "one sentence at a time" if table["rows"] == 1 else f"{table['rows']} on each core"
    print(f"\n{table['text']}, {table['cores']} cores, {flight}; source tokens/s\n")
    print(f"  {'':22}{'seqserve':>10}{'Marian':>10}   seqserve / Marian   words of fp32")
    for way in table["ways"]:
        ratio, ours, theirs = way["ratio"], way["seqserve"], way["Marian"]
        print(
            f"  {way['name']:22}{ours['tokens_per_s']:10,.0f}{theirs['tokens_per_s']:10,.0f}"
            f"   {ratio['median']:5.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
            f"   {ours['equal_share']:.0%}, {theirs['equal_share']:.0%}"
        )
    print_signature()
