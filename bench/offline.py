"""Compares tokens per second with other engines, on the same weights in one run, without gRPC.

The shipped model decodes everyday sentences to their end tokens. The larger one has random weights,
and decodes a fixed number of target tokens: its speed is that of a translation model of the
usual size. Every engine has the same number of rows in flight on each core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import marian
from bench.comparison import compare, fastest, print_table
from bench.huggingface import HuggingFacePeer, save
from bench.load import MAX_DECODING_LENGTH
from bench.optimum import OptimumPeer, export
from bench.peers import CTranslate2Converter, CTranslate2Peer, Peer, Rows, SeqservePeer
from bench.sentences import everyday
from seqserve_export.calibration import calibrate
from seqserve_export.precision import Caches, Scales
from seqserve_export.quantization import quantize
from seqserve_export.restore import restore
from seqserve_model.transformer import Transformer
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.cores import available_cores

_FORCED_LENGTH = 32
_WAVES = 16
"""Times as many sources in a turn as are in flight, at least."""
_MIN_REPEATS = 8
"""Times that a turn has all everyday sentences, at least: about half a second."""
BEAMED_ROWS = 8
"""Sources in flight on each core where ways to decode are compared."""
_OPTIMUM = Path("build/optimum/bin/python")
_CALIBRATION_ROWS = 16

_TO_THE_END = DecodingOptions(max_decoding_length=MAX_DECODING_LENGTH)
_WAYS: dict[str, dict[str, Any]] = {
    "beam of 5": {"beam_size": 5},
    "sampling": {"sampling": Sampling(temperature=1.0, top_k=40, top_p=1.0, min_p=0.0, seed=1)},
}

Build = Callable[[], Peer]


@contextmanager
def _prepared(whole: Path) -> Iterator[tuple[Path, Rows]]:
    """Gives a folder with the weights of an artifact for CTranslate2, and sources."""
    tokenizer = Tokenizer.load(whole / "tokenizer.json")
    with tempfile.TemporaryDirectory() as folder:
        CTranslate2Converter(restore(whole)).convert(folder, force=True)
        yield Path(folder), [tokenizer.encode(line) for line in everyday()]


def real_sentences(
    whole: Path, artifacts: list[Path], rows: list[int], rounds: int
) -> list[dict[str, Any]]:
    """Compares on everyday sentences.

    Args:
        whole: The fp32 artifact, whose weights the others get.
        artifacts: What of ours is compared, an fp32 one among them.
        rows: In flight in each worker, each number a table.
        rounds: Turns of each peer.
    """
    tables = []
    with _prepared(whole) as (converted, sources):
        for count in rows:
            # Many times as many as are in flight: what counts is neither the start nor the end.
            in_flight = count * available_cores()
            some = sources * max(_MIN_REPEATS, round(_WAVES * in_flight / len(sources)))
            ours: list[Build] = [
                partial(SeqservePeer, folder, count, _TO_THE_END) for folder in artifacts
            ]
            theirs = ctranslate2(converted, count, _TO_THE_END, sources)
            tables.append(take_turns([*ours, *theirs], some, count, rounds))
    return tables


def decoding(whole: Path, artifacts: list[Path], rows: int, rounds: int) -> list[dict[str, Any]]:
    """Compares ways to decode everyday sentences: beam search and sampling.

    Args:
        whole: The fp32 artifact, whose weights CTranslate2 gets.
        artifacts: What of ours is compared, an fp32 one among them.
        rows: Sources in flight in each worker, whatever rows each takes.
        rounds: Turns of each peer.
    """
    with _prepared(whole) as (converted, sources):
        return _ways(artifacts, converted, sources, _TO_THE_END, rows, rounds)


def marian_decoding(rows: int, rounds: int, *, length: int) -> list[dict[str, Any]]:
    """Compares the same on random weights of Marian's base shape."""
    sources = marian.sources(2 * rows * available_cores())
    with _marian() as (_, artifacts, folder):
        return _ways(artifacts, folder / "converted", sources, forced(length), rows, rounds)


def _ways(
    artifacts: list[Path],
    converted: Path,
    sources: Rows,
    options: DecodingOptions,
    rows: int,
    rounds: int,
) -> list[dict[str, Any]]:
    tables = []
    for name, changed in _WAYS.items():
        way = replace(options, **changed)
        ours: list[Build] = [partial(SeqservePeer, folder, rows, way) for folder in artifacts]
        theirs = ctranslate2(converted, rows, way, sources)
        is_drawn = way.sampling is not None
        table = take_turns([*ours, *theirs], sources, rows, rounds, may_differ=is_drawn)
        tables.append(table | {"name": name})
    return tables


def forced(length: int) -> DecodingOptions:
    """Requests targets of a fixed length."""
    return DecodingOptions(max_decoding_length=length, min_decoding_length=length)


@contextmanager
def _marian() -> Iterator[tuple[Transformer, list[Path], Path]]:
    """Gives the larger model, its artifacts, and a folder where ``converted`` is CTranslate2's."""
    model = marian.marian_base()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        artifacts = write_artifacts(model, folder)
        CTranslate2Converter(model).convert(str(folder / "converted"))
        yield model, artifacts, folder


def marian_base(rows: list[int], rounds: int, *, length: int) -> list[dict[str, Any]]:
    """Compares on random weights of Marian's base shape, with targets of ``length`` tokens."""
    options, tables = forced(length), []
    with _marian() as (model, artifacts, folder):
        save(model, folder / "checkpoint")
        has_optimum = _OPTIMUM.exists()
        if has_optimum:
            export(_OPTIMUM, folder / "checkpoint", folder / "optimum")
        else:
            print("Optimum is left out: `make build/optimum/.ready` sets it up")
        for count in rows:
            # Two full batches for each worker.
            sources = marian.sources(max(2 * count * available_cores(), 8))
            peers: list[Build] = [
                partial(SeqservePeer, artifact, count, options) for artifact in artifacts
            ]
            peers += ctranslate2(folder / "converted", count, options, sources)
            # These two take long to try: one thread a worker was faster wherever both were tried.
            layout = (available_cores(), 1)
            peers.append(partial(HuggingFacePeer, model, count, length, layout))
            if has_optimum:
                optimum = partial(OptimumPeer, _OPTIMUM, folder / "optimum")
                peers.append(partial(optimum, layout, count, length))
            tables.append(take_turns(peers, sources, count, rounds))
    return tables


def write_artifacts(model: Transformer, repository: Path) -> list[Path]:
    """Exports the model as it is and in eight bits, calibrated on what it will be given."""
    sources = marian.sources(_CALIBRATION_ROWS, config=model.config)
    calibration = calibrate(model, sources, _FORCED_LENGTH)
    integers = quantize(model, calibration, Scales.STATIC, Caches.INT8)
    return [
        marian.write(integers, repository, "int8"),
        marian.write(model, repository, "fp32"),
    ]


def ctranslate2(folder: Path, rows: int, options: DecodingOptions, sources: Rows) -> list[Build]:
    """Gives CTranslate2 at both precisions, each in the layout that is fastest here."""
    return [
        fastest(
            [
                partial(CTranslate2Peer, folder, precision, layout, rows, options)
                for layout in _layouts()
            ],
            sources[: max(rows * available_cores(), 8)],
        )
        for precision in ("int8", "float32")
    ]


def _layouts() -> list[tuple[int, int]]:
    """Lists workers and threads of each: one thread a worker, or all in one."""
    cores = available_cores()
    return list(dict.fromkeys([(cores, 1), (1, cores)]))


def take_turns(
    peers: list[Build], sources: Rows, rows: int, rounds: int, *, may_differ: bool = False
) -> dict[str, Any]:
    """Loads the peers, lets them take turns as :func:`compare` has it, and closes them."""
    running = [build() for build in peers]
    try:
        return compare(running, sources, rows, rounds, may_differ=may_differ)
    finally:
        for peer in running:
            peer.close()


def print_tables(title: str, tables: list[dict[str, Any]]) -> None:
    """Prints tables, against CTranslate2 at int8."""
    print(f"\n{title}\n")
    for table in tables:
        [base] = [
            peer["name"] for peer in table["peers"] if peer["name"].startswith("CTranslate2 int8")
        ]
        print_table(table, base)
