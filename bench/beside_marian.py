"""Compares this engine with Marian on a model in Marian's files, text in and text out.

Each engine has its own tokenizer, unless Marian's vocabulary is numbered words. Speeds are those of
source tokens, as the makers of such models give them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bench.comparison import MIN_EQUAL_SHARE, equal_share, shown, spread
from bench.garbage import freeze_objects
from bench.native_marian import MarianPeer, NativeModel
from bench.numbered_words import TokenizedPeer
from bench.peers import TextPeer
from bench.provenance import print_signature
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.engine.offline import Offline
from seqserve_server.front.cores import available_cores

ROWS = 32
"""Sources in flight on each core, where many are."""
_SENTENCES = 96
"""Of a turn on each core where many are in flight: full batches."""
_ALONE = 32
"""Of a turn where one is."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How engines decode."""

    precision: str
    has_shortlist: bool

    @property
    def name(self) -> str:
        return self.precision + " with shortlist" * self.has_shortlist


def _ways(model: NativeModel) -> list[_Way]:
    ways = [_Way("int8", False), _Way("fp32", False)]
    return [_Way("int8", True), *ways] if model.shortlist else ways


class _Seqserve:
    """This project's engine without gRPC, one thread a worker."""

    def __init__(
        self, artifact: Path, has_shortlist: bool, rows: int, workers: int, length: int
    ) -> None:
        self._engine = Offline(artifact, workers=workers, slots=rows * workers)
        # Marian neither writes the unknown token nor computes scores.
        self._options = DecodingOptions(
            max_decoding_length=length or self._engine.manifest.limits.max_target_length,
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


def compare(
    model: NativeModel,
    artifacts: dict[str, Path],
    texts: list[str],
    *,
    cores: int,
    rows: int,
    rounds: int,
    length: int = 0,
) -> dict[str, Any]:
    """Lets both engines decode texts in every way, in turn.

    Args:
        model: For Marian.
        artifacts: The same model for this engine, by precision, ``fp32`` and ``int8``.
        texts: The sources.
        cores: Workers of this engine, processes of Marian.
        rows: Sources in flight on each; with 1 each engine gets one after the other.
        rounds: Turns of each engine.
        length: Most target tokens of this engine; the model's own limit if 0.
    """
    tokenizer = Tokenizer.load(artifacts["fp32"] / "tokenizer.json")
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    with _engines(model, artifacts, cores, rows, length) as engines:
        outputs = {key: engine.translate(texts) for key, engine in engines.items()}
        freeze_objects()
        seconds: dict[tuple[str, str], list[float]] = {key: [] for key in engines}
        for _ in range(rounds):
            for key, engine in engines.items():
                seconds[key].append(_timed(engine, texts, at_once=rows > 1))
    whole = outputs["Marian", "fp32"]
    return {
        "cores": cores,
        "rows": rows,
        "ways": [
            {
                "name": way.name,
                **{
                    engine: {
                        "tokens_per_s": tokens / statistics.median(seconds[engine, way.name]),
                        "equal_share": equal_share(whole, outputs[engine, way.name]),
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
            for way in _ways(model)
        ],
    }


@contextmanager
def _engines(
    model: NativeModel, artifacts: dict[str, Path], cores: int, rows: int, length: int
) -> Iterator[dict[tuple[str, str], TextPeer]]:
    """Gives the engines by their names and ways."""
    with ExitStack() as stack:
        found: dict[tuple[str, str], TextPeer] = {}
        for way in _ways(model):
            options = model.options(way.precision, has_shortlist=way.has_shortlist, rows=rows)
            build: dict[str, Callable[[], TextPeer]] = {
                "seqserve": lambda way=way: _Seqserve(  # type: ignore[misc]
                    artifacts[way.precision], way.has_shortlist, rows, cores, length
                ),
                "Marian": lambda options=options: _marian(model, options, cores),  # type: ignore[misc]
            }
            for engine, make in build.items():
                found[engine, way.name] = stack.enter_context(closing(make()))
        yield found


def _marian(model: NativeModel, options: list[str], cores: int) -> TextPeer:
    peer = MarianPeer(options, cores)
    return TokenizedPeer(peer, model.tokenizer) if model.tokenizer else peer


def _timed(engine: TextPeer, texts: list[str], *, at_once: bool) -> float:
    began_s = time.perf_counter()
    for batch in [texts] if at_once else [[text] for text in texts]:
        engine.translate(batch)
    return time.perf_counter() - began_s


def compare_layouts(
    name: str, model: NativeModel, artifacts: dict[str, Path], texts: list[str], rounds: int
) -> list[dict[str, Any]]:
    """Compares with many rows in flight on one core and on all, then with one; prints each table.

    The arguments are those of :func:`compare`, and a name for the tables.
    """
    tables = []
    for cores, rows in dict.fromkeys([(1, ROWS), (available_cores(), ROWS), (1, 1)]):
        some = list(islice(cycle(texts), _SENTENCES * cores if rows > 1 else _ALONE))
        table = compare(model, artifacts, some, cores=cores, rows=rows, rounds=rounds)
        print_table(name, table)
        tables.append({"text": name, **table})
    return tables


def check_words(table: dict[str, Any]) -> None:
    """Refuses a comparison of engines that compute something else.

    Raises:
        SystemExit: Their words differ at fp32.
    """
    [whole] = [way for way in table["ways"] if way["name"] == "fp32"]
    if whole["seqserve"]["equal_share"] < MIN_EQUAL_SHARE:
        raise SystemExit("the engines' words differ at fp32: not comparable")


def run_import(
    model: NativeModel, repository: Path, precision: str, texts: Sequence[str], module: str
) -> Path:
    """Runs ``seqserve import``, or a ``module`` that stands for it; gives the artifact's folder."""
    data = repository / "sentences.txt"
    data.write_text("\n".join(texts), encoding="utf-8")
    command = [
        *(sys.executable, "-m", module, str(model.folder)),
        *("--name", precision, "--precision", precision, "--data", str(data)),
        *("--model-repository", str(repository), "--sentences", str(len(texts))),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return repository / precision / "1"


def print_table(name: str, table: dict[str, Any]) -> None:
    """Prints what :func:`compare` gave."""
    flight = "one sentence at a time" if table["rows"] == 1 else f"{table['rows']} on each core"
    print(f"\n{name}, {table['cores']} cores, {flight}; source tokens/s\n")
    print(f"  {'':22}{'seqserve':>10}{'Marian':>10}   seqserve / Marian   words of fp32")
    for way in table["ways"]:
        ratio, ours, theirs = way["ratio"], way["seqserve"], way["Marian"]
        print(
            f"  {way['name']:22}{ours['tokens_per_s']:10,.0f}{theirs['tokens_per_s']:10,.0f}"
            f"   {shown(ratio, 5)}"
            f"   {ours['equal_share']:.0%}, {theirs['equal_share']:.0%}"
        )
    print_signature()
