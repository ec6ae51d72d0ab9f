"""This engine beside Marian on a model in Marian's files, text in and text out.

Each engine has its own tokenizer, unless Marian's vocabulary is numbered words. Speeds are in
source tokens, as the makers of such models give them. Three models: Firefox's tiny student from
English to Portuguese; random weights of Marian's base shape; and a trained model of ours with a
recurrent decoder, as a student's is.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from bench import import_checkpoint, marian_files
from bench.drivers import Driver, gc_freeze
from bench.drivers.marian import MarianDriver, MarianModel
from bench.drivers.seqserve import SeqserveDriver
from bench.drivers.server_process import batch_server, seqserve_server
from bench.models import MARIAN_BASE, SHIPPED, marian_base, newest
from bench.scenarios import online
from bench.sentences import everyday, news
from bench.tables import Table, shown, spread_of_ratios
from bench.turns import check_equal, equal_share, take_turns
from seqserve.processes import available_cores
from seqserve_export.restore import restore
from seqserve_model.vocabulary import CONTROL_TOKENS
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.text.tokenizer import Tokenizer

_ROWS = 32
"""Sources in flight on each core, where many are."""
_SENTENCES = 96
"""Of a turn on each core where many are in flight: full batches."""
_ALONE = 32
"""Of a turn where one is."""
_IMPORTED = 120
"""Sentences of the proof of an import."""
_PROVEN = 16
"""The same with random weights."""
_SOURCE_TOKENS, _TARGET_TOKENS = 16, 32
"""Of random weights."""
_BASE_CONFIG = replace(MARIAN_BASE, **marian_files.CONVENTIONS)
_SERVER = "Marian int8"
FIREFOX_PLAN = online.Plan(base=_SERVER, peers=(), shares=(0.5, 0.8), rounds=2, seconds=4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One model for both engines."""

    model: MarianModel
    artifacts: dict[str, Path]
    """For this engine, by precision, ``fp32`` and ``int8``."""
    tokenizer: Tokenizer | None = None
    """Of Marian's texts, where its vocabulary is numbered words and texts are not."""


class _Way(NamedTuple):
    """How engines decode."""

    precision: str
    has_shortlist: bool = False

    @property
    def name(self) -> str:
        return self.precision + " with shortlist" * self.has_shortlist


def _ways(model: MarianModel) -> list[_Way]:
    ways = [_Way("int8"), _Way("fp32")]
    return [_Way("int8", has_shortlist=True), *ways] if model.shortlist else ways


def firefox(rounds: int, plan: online.Plan = FIREFOX_PLAN) -> dict[str, Any]:
    """Compares on Firefox's English to Portuguese: engines in turn, then servers.

    Raises:
        SystemExit: Marian's environment is missing, or an import failed.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, known = marian_files.student("enpt", folder), everyday()[:_IMPORTED]
        artifacts = {
            precision: import_checkpoint.run(
                model.folder, folder, precision, sentences=len(known), texts=known
            ).artifact
            for precision in model.models
        }
        pair = Pair(model=model, artifacts=artifacts)
        tables = [
            table
            for name, texts in (("everyday", everyday()), ("news", news()))
            for table in _layouts(name, pair, texts, rounds)
        ]
        return {"engines": tables, "servers": _serve(pair, plan, folder)}


def _serve(pair: Pair, plan: online.Plan, folder: Path) -> dict[str, Any]:
    """Compares servers on everyday sentences, in eight bits with the shortlist."""
    options = pair.model.options("int8", has_shortlist=True, rows=_ROWS)
    servers = [
        seqserve_server(pair.artifacts["int8"], folder),
        batch_server(_SERVER, "marian", "--", *options, delay_ms=plan.delay_ms),
    ]
    series = online.take_turns(servers, everyday(), plan, folder)
    return online.report_of("Firefox's English to Portuguese", series, plan)


def native(rounds: int, rows: Sequence[int] = (1, 8, 32)) -> list[dict[str, Any]]:
    """Compares on random weights of Marian's base shape.

    ``seqserve import`` reads Marian's files, so both engines compute one network, which their words
    show. The end token never wins: every target has as many tokens as Marian allows, a multiple of
    its source's.

    Raises:
        SystemExit: Marian's environment is missing, an import failed, or words differ at fp32.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        written = marian_files.write(marian_base(_BASE_CONFIG), folder)
        model = replace(written, length_factor=_TARGET_TOKENS / _SOURCE_TOKENS)
        # What random weights lose by rounding says nothing.
        artifacts = {
            precision: import_checkpoint.run(
                model.folder,
                folder,
                precision,
                sentences=_PROVEN,
                texts=_random_texts(_PROVEN),
                is_checked=False,
            ).artifact
            for precision in model.models
        }
        pair, tables = Pair(model=model, artifacts=artifacts), []
        for count in rows:
            cores = available_cores() if count > 1 else 1
            # Two full batches for each worker.
            texts = _random_texts(max(2 * count * cores, 8))
            layout = {"cores": cores, "rows": count, "rounds": min(rounds, 3)}
            tables.append(compare(pair, texts, **layout, length=_TARGET_TOKENS))
            _check_words(tables[-1])
        return tables


def _random_texts(count: int) -> list[str]:
    draw = random.Random(count)
    numbers = range(len(CONTROL_TOKENS), _BASE_CONFIG.vocabulary_size)
    # The end token is one of the source's.
    return [
        " ".join(f"t{number}" for number in draw.choices(numbers, k=_SOURCE_TOKENS - 1))
        for _ in range(count)
    ]


def ssru(rounds: int, model: Path = SHIPPED) -> list[dict[str, Any]]:
    """Compares on a trained model of ours: Marian gets its weights and its tokenizer's ids.

    Args:
        rounds: Turns of each engine.
        model: Folder of versions, recurrent ones at fp32 and at int8 among them.

    Raises:
        SystemExit: There are none, Marian's environment is missing, or words differ at fp32.
    """
    artifacts = {name: newest(model, name, is_recurrent=True) for name in ("fp32", "int8")}
    tokenizer = Tokenizer.load(artifacts["fp32"] / "tokenizer.json")
    with tempfile.TemporaryDirectory() as place:
        written = marian_files.write(restore(artifacts["fp32"]), Path(place))
        pair = Pair(model=written, artifacts=artifacts, tokenizer=tokenizer)
        tables = _layouts("everyday", pair, everyday(), rounds)
    for table in tables:
        _check_words(table)
    return tables


def _layouts(name: str, pair: Pair, texts: list[str], rounds: int) -> list[dict[str, Any]]:
    """Compares with many rows in flight on one core and on all, then with one."""
    tables = []
    for cores, rows in dict.fromkeys([(1, _ROWS), (available_cores(), _ROWS), (1, 1)]):
        some = list(islice(cycle(texts), _SENTENCES * cores if rows > 1 else _ALONE))
        table = compare(pair, some, cores=cores, rows=rows, rounds=min(rounds, 3))
        tables.append({"text": name, **table})
    return tables


def compare(
    pair: Pair, texts: list[str], *, cores: int, rows: int, rounds: int, length: int = 0
) -> dict[str, Any]:
    """Lets both engines decode texts in every way, in turn.

    Args:
        pair: The model.
        texts: The sources.
        cores: Workers of this engine, processes of Marian.
        rows: Sources in flight on each; with 1 each engine gets one after the other.
        rounds: Turns of each engine.
        length: Most target tokens of this engine; the model's own limit if 0.
    """
    tokenizer = Tokenizer.load(pair.artifacts["fp32"] / "tokenizer.json")
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    batches = [texts] if rows > 1 else [[text] for text in texts]
    with _engines(pair, cores, rows, length) as engines:
        outputs = {key: engine.decode(texts) for key, engine in engines.items()}
        gc_freeze()
        turns = {key: partial(_timed, engine, batches) for key, engine in engines.items()}
        seconds = take_turns(turns, rounds)
    reference = outputs["Marian", "fp32"]
    return {
        "cores": cores,
        "rows": rows,
        "ways": [
            {
                "name": way.name,
                **{
                    engine: {
                        "tokens_per_s": tokens / statistics.median(seconds[engine, way.name]),
                        "equal_share": equal_share(reference, outputs[engine, way.name]),
                    }
                    for engine in ("seqserve", "Marian")
                },
                "ratio": spread_of_ratios(
                    seconds["Marian", way.name], seconds["seqserve", way.name]
                ),
            }
            for way in _ways(pair.model)
        ],
    }


@contextmanager
def _engines(
    pair: Pair, cores: int, rows: int, length: int
) -> Iterator[dict[tuple[str, str], Driver[str]]]:
    """Starts both engines in every way; yields them by their names and ways."""
    with ExitStack() as stack:
        engines: dict[tuple[str, str], Driver[str]] = {}
        for way in _ways(pair.model):
            ours = _seqserve(pair.artifacts[way.precision], way, cores, rows, length)
            engines["seqserve", way.name] = stack.enter_context(ours)
            options = pair.model.options(way.precision, has_shortlist=way.has_shortlist, rows=rows)
            theirs: Driver[str] = MarianDriver(options, cores)
            if pair.tokenizer:
                theirs = marian_files.of_texts(theirs, pair.tokenizer)
            engines["Marian", way.name] = stack.enter_context(theirs)
        yield engines


def _seqserve(artifact: Path, way: _Way, cores: int, rows: int, length: int) -> Driver[str]:
    manifest = Manifest.read(artifact)
    options = DecodingOptions(
        max_decoding_length=length or manifest.limits.max_target_length,
        # Marian does not write the unknown token.
        suppressed=((manifest.tokens.unk,),),
        shortlist=way.has_shortlist,
    )
    return SeqserveDriver(artifact, rows, options, cores).of_texts()


def _timed(engine: Driver[str], batches: Sequence[list[str]]) -> float:
    began_s = time.perf_counter()
    for batch in batches:
        engine.decode(batch)
    return time.perf_counter() - began_s


def _check_words(table: dict[str, Any]) -> None:
    """Refuses a comparison of engines that compute something else.

    Raises:
        SystemExit: Their words differ at fp32.
    """
    [floats] = [way for way in table["ways"] if way["name"] == "fp32"]
    check_equal({"seqserve fp32": floats["seqserve"]["equal_share"]})


def tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`native` and :func:`ssru` returned: a row for each layout."""
    first, *others = [way["name"] for way in report[0]["ways"]]
    head = ["source tokens/s", f"seqserve, {first}", f"Marian, {first}", "**seqserve / Marian**"]
    head += [f"{name}, ratio" for name in others]
    return [Table([*head, "words of fp32: seqserve, Marian"], [_row(table) for table in report])]


def firefox_tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`firefox` returned."""
    return [*tables(report["engines"]), *online.tables(report["servers"])]


def _row(table: dict[str, Any]) -> list[str]:
    flight = "one at a time" if table["rows"] == 1 else f"{table['rows']} in flight on each core"
    text = f"{table['text']}, " if "text" in table else ""
    first = table["ways"][0]
    return [
        f"{text}{flight}, cores: {table['cores']}",
        *(f"{first[engine]['tokens_per_s']:,.0f}" for engine in ("seqserve", "Marian")),
        *(shown(way["ratio"]) for way in table["ways"]),
        ", ".join(f"{first[engine]['equal_share']:.0%}" for engine in ("seqserve", "Marian")),
    ]
