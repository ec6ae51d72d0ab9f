"""This engine compared with Marian on a model in Marian's files, text in and text out.

Each engine has its own tokenizer, unless Marian's vocabulary is numbered words. Speeds are in
source tokens, as the makers of these models give them. Two models: Firefox's tiny student from
English to Portuguese, and random weights of Marian's base shape.
"""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from bench import import_checkpoint, marian_files
from bench.comparison import Build, check_equal
from bench.comparison import compare as _compare
from bench.drivers import Driver
from bench.drivers.marian import MarianDriver, MarianModel
from bench.drivers.seqserve import SeqserveDriver, TextDriver
from bench.drivers.server_process import batch_server, seqserve_server
from bench.models import MARIAN_BASE, marian_base
from bench.requests import everyday, news
from bench.scenarios import online
from bench.tables import Table, shown
from seqserve.processes import available_cores
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


class _Way(NamedTuple):
    precision: str
    has_shortlist: bool = False

    @property
    def name(self) -> str:
        return self.precision + " with shortlist" * self.has_shortlist


def _ways(model: MarianModel) -> list[_Way]:
    ways = [_Way("int8"), _Way("fp32")]
    return [_Way("int8", has_shortlist=True), *ways] if model.shortlist else ways


def firefox(rounds: int, plan: online.Plan = FIREFOX_PLAN) -> dict[str, Any]:
    """Compares on Firefox's English to Portuguese: engines in turn, then servers."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, known = marian_files.student("enpt", folder), everyday()[:_IMPORTED]
        pair = _imported(model, folder, known)
        tables = [
            table
            for name, texts in (("everyday", everyday()), ("news", news()))
            for table in _layouts(name, pair, texts, rounds)
        ]
        return {"engines": tables, "servers": _serve(pair, plan, folder)}


def _imported(
    model: MarianModel, folder: Path, texts: Sequence[str], *, is_checked: bool = True
) -> Pair:
    take = partial(import_checkpoint.run, sentences=len(texts), texts=texts, is_checked=is_checked)
    artifacts = {kind: take(model.folder, folder, kind).artifact for kind in model.models}
    return Pair(model=model, artifacts=artifacts)


def _serve(pair: Pair, plan: online.Plan, folder: Path) -> dict[str, Any]:
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
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        written = marian_files.write(marian_base(_BASE_CONFIG), folder)
        model = replace(written, length_factor=_TARGET_TOKENS / _SOURCE_TOKENS)
        # The loss of random weights by rounding is meaningless.
        pair = _imported(model, folder, _random_texts(_PROVEN), is_checked=False)
        tables = []
        for count in rows:
            cores = available_cores() if count > 1 else 1
            # Two full batches for each worker.
            texts = _random_texts(max(2 * count * cores, 8))
            layout = {"cores": cores, "rows": count, "rounds": min(rounds, 3)}
            tables.append(compare(pair, texts, **layout, length=_TARGET_TOKENS))
            # Eight bits of random weights say nothing.
            check_equal({"seqserve fp32": _peers(tables[-1])["seqserve fp32"]["equal_share"]})
        return tables


def _random_texts(count: int) -> list[str]:
    draw = random.Random(count)
    numbers = range(len(CONTROL_TOKENS), _BASE_CONFIG.vocabulary_size)
    # The end token is one of the source's.
    return [
        " ".join(f"t{number}" for number in draw.choices(numbers, k=_SOURCE_TOKENS - 1))
        for _ in range(count)
    ]


def _layouts(name: str, pair: Pair, texts: list[str], rounds: int) -> list[dict[str, Any]]:
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
        cores: Workers of this engine, processes of Marian.
        rows: Sources in flight on each; with 1 each engine gets one after the other.
        length: Most target tokens of this engine; the model's own limit if 0.
    """
    tokenizer = Tokenizer.load(pair.artifacts["fp32"] / "tokenizer.json")
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    engines: list[Build[str]] = []
    for way in _ways(pair.model):
        engines.append(partial(_seqserve, pair.artifacts[way.precision], way, cores, rows, length))
        engines.append(partial(_marian, pair, way, cores, rows))
    table = _compare(
        engines, texts, rows, rounds, may_differ=True, reference="Marian fp32", tokens=tokens
    )
    return {"cores": cores, **table}


def _marian(pair: Pair, way: _Way, cores: int, rows: int) -> Driver[str]:
    options = pair.model.options(way.precision, has_shortlist=way.has_shortlist, rows=rows)
    driver: Driver[str] = MarianDriver(options, cores)
    driver.name = f"Marian {way.name}"
    return driver


def _seqserve(artifact: Path, way: _Way, cores: int, rows: int, length: int) -> Driver[str]:
    manifest = Manifest.read(artifact)
    options = DecodingOptions(
        max_decoding_length=length or manifest.limits.max_target_length,
        # Marian does not write the unknown token.
        suppressed=((manifest.tokens.unk,),),
        shortlist=way.has_shortlist,
    )
    return TextDriver(SeqserveDriver(artifact, rows, options, cores), f"seqserve {way.name}")


def tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`native` returned: a row for each layout."""
    first, *others = [
        name.removeprefix("Marian ") for name in _peers(report[0]) if name.startswith("Marian")
    ]
    head = ["source tokens/s", f"seqserve, {first}", f"Marian, {first}", "**seqserve / Marian**"]
    head += [f"{name}, ratio" for name in others]
    rows = [_row(table, first, others) for table in report]
    return [Table([*head, "words of fp32: seqserve, Marian"], rows)]


def firefox_tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`firefox` returned."""
    return [*tables(report["engines"]), *online.tables(report["servers"])]


def _peers(table: dict[str, Any]) -> dict[str, Any]:
    return {peer["name"]: peer for peer in table["peers"]}


def _row(table: dict[str, Any], first: str, others: list[str]) -> list[str]:
    flight = "one at a time" if table["rows"] == 1 else f"{table['rows']} in flight on each core"
    text = f"{table['text']}, " if "text" in table else ""
    peers = _peers(table)
    compared = [peers[f"{engine} {first}"] for engine in ("seqserve", "Marian")]
    return [
        f"{text}{flight}, cores: {table['cores']}",
        *(f"{peer['tokens_per_s']:,.0f}" for peer in compared),
        *(shown(peers[f"seqserve {way}"]["ratios"][f"Marian {way}"]) for way in (first, *others)),
        ", ".join(f"{peer['equal_share']:.0%}" for peer in compared),
    ]
