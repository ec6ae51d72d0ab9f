"""Tokens per second of several engines, on the same weights in one run, without gRPC.

The shipped model decodes everyday sentences to their end tokens. The larger one has random weights,
and decodes a fixed number of target tokens, as fast as a translation model of the usual size. Every
engine has the same number of rows in flight on each core.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from bench.comparison import Build, compare, fastest, speed_table
from bench.drivers import Rows, optimum
from bench.drivers.ctranslate2 import CTranslate2Converter, CTranslate2Driver
from bench.drivers.seqserve import SeqserveDriver
from bench.drivers.transformers import TransformersDriver, marian_of
from bench.models import marian_base, random_sources, shipped_artifacts, write_unproven
from bench.requests import MAX_DECODING_LENGTH, everyday
from bench.tables import Table
from seqserve.processes import available_cores
from seqserve_export.calibration import calibrate
from seqserve_export.options import Caches, Scales
from seqserve_export.quantization import quantize
from seqserve_export.restore import restore
from seqserve_model.transformer import Transformer
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.text.tokenizer import FILE, Tokenizer

LENGTH = 32
"""Target tokens where weights are random."""
_WAVES = 16
"""Times as many sources in a turn as are in flight, at least."""
_MIN_REPEATS = 8
"""Times that a turn has all everyday sentences, at least: about half a second."""
_BEAMED_ROWS = 8
"""Sources in flight on each core where ways to decode are compared."""
_CALIBRATION_ROWS = 16

_TO_THE_END = DecodingOptions(max_decoding_length=MAX_DECODING_LENGTH)
FORCED = DecodingOptions(max_decoding_length=LENGTH, min_decoding_length=LENGTH)
_WAYS: dict[str, dict[str, Any]] = {
    "beam of 5": {"beam_size": 5},
    "sampling": {"sampling": Sampling(temperature=1.0, top_k=40, top_p=1.0, min_p=0.0, seed=1)},
}


_Build: TypeAlias = Build[list[int]]


@dataclass(frozen=True, slots=True)
class Weights:
    """One model for every engine."""

    artifacts: list[Path]
    """For this engine, at int8 and at fp32."""
    converted: Path
    """For CTranslate2."""
    checkpoint: Path | None = None
    """For transformers and Optimum."""


@dataclass(frozen=True, slots=True)
class Case:
    """The sources and options of all engines."""

    sources: Rows
    rows: int
    """In flight in each worker, whatever rows a source takes."""
    options: DecodingOptions


def _seqserve(weights: Weights, case: Case) -> list[_Build]:
    return [
        partial(SeqserveDriver, artifact, case.rows, case.options) for artifact in weights.artifacts
    ]


def _ctranslate2(weights: Weights, case: Case) -> list[_Build]:
    cores = available_cores()
    # One thread a worker, or all in one.
    layouts = dict.fromkeys([(cores, 1), (1, cores)])
    some = case.sources[: max(case.rows * cores, 8)]
    driver = partial(CTranslate2Driver, weights.converted)
    return [
        fastest(
            [partial(driver, name, layout, case.rows, case.options) for layout in layouts], some
        )
        for name in ("int8", "float32")
    ]


def _transformers(weights: Weights, case: Case) -> list[_Build]:
    assert weights.checkpoint is not None
    # Trying takes long: one thread a worker was faster wherever both layouts were tried.
    layout = (available_cores(), 1)
    return [partial(TransformersDriver.load, weights.checkpoint, case.rows, LENGTH, layout)]


def _optimum(weights: Weights, case: Case) -> list[_Build]:
    if not optimum.INTERPRETER.exists():
        print("Optimum is left out: `make build/optimum/.ready` sets it up")
        return []
    assert weights.checkpoint is not None
    folder = weights.checkpoint.with_name("optimum")
    if not folder.exists():
        optimum.export(weights.checkpoint, folder)
    # As transformers.
    layout = (available_cores(), 1)
    return [partial(optimum.OptimumDriver, folder, case.rows, LENGTH, layout)]


Engine = Callable[[Weights, Case], list[_Build]]
PAIR: tuple[Engine, ...] = (_seqserve, _ctranslate2)
_ALL: tuple[Engine, ...] = (*PAIR, _transformers, _optimum)


def builds(weights: Weights, case: Case, engines: Sequence[Engine] = PAIR) -> list[_Build]:
    """Returns how to start the engines of a case, at every precision that they have."""
    return [build for engine in engines for build in engine(weights, case)]


@contextmanager
def _shipped() -> Iterator[tuple[Weights, Rows]]:
    integers, _ = shipped_artifacts()
    tokenizer = Tokenizer.load(integers / FILE)
    # No other version has the same weights.
    model = restore(integers)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        CTranslate2Converter(model).convert(str(folder / "converted"))
        floats = write_unproven(model, folder, "fp32", tokenizer)
        sources = [tokenizer.encode(line) for line in everyday()]
        yield Weights([integers, floats], folder / "converted"), sources


@contextmanager
def _base(*, has_checkpoint: bool = False) -> Iterator[Weights]:
    model = marian_base()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        CTranslate2Converter(model).convert(str(folder / "converted"))
        checkpoint = folder / "checkpoint" if has_checkpoint else None
        if checkpoint:
            marian_of(model).save_pretrained(checkpoint)
        yield Weights(write_artifacts(model, folder), folder / "converted", checkpoint)


def write_artifacts(model: Transformer, repository: Path) -> list[Path]:
    """Exports a model in eight bits, calibrated on what it will be given, and as it is."""
    sources = random_sources(_CALIBRATION_ROWS, config=model.config)
    integers = quantize(model, calibrate(model, sources, LENGTH), Scales.STATIC, Caches.INT8)
    return [
        write_unproven(integers, repository, "int8"),
        write_unproven(model, repository, "fp32"),
    ]


def sentences(rounds: int, rows: Sequence[int] = (1, 8, 32, 64)) -> list[dict[str, Any]]:
    """Compares on everyday sentences, with the shipped model."""
    tables = []
    with _shipped() as (weights, sources):
        for count in rows:
            # Many times as many as are in flight: what counts is neither the start nor the end.
            waves = round(_WAVES * count * available_cores() / len(sources))
            case = Case(sources, count, _TO_THE_END)
            repeated = sources * max(_MIN_REPEATS, waves)
            tables.append(compare(builds(weights, case), repeated, count, rounds))
    return tables


def sentences_tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`sentences` returned."""
    return [speed_table("the shipped small model; rows on each core", report)]


def marian(rounds: int, rows: Sequence[int] = (1, 8, 32)) -> list[dict[str, Any]]:
    """Compares with every engine, on random weights of Marian's base shape."""
    tables = []
    with _base(has_checkpoint=True) as weights:
        for count in rows:
            # Two full batches for each worker.
            sources = random_sources(max(2 * count * available_cores(), 8))
            case = Case(sources, count, FORCED)
            tables.append(compare(builds(weights, case, _ALL), sources, count, min(rounds, 3)))
    return tables


def marian_tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`marian` returned."""
    return [speed_table("Marian base shape; rows on each core", report)]


def decoding(rounds: int, rows: int = _BEAMED_ROWS) -> dict[str, list[dict[str, Any]]]:
    """Compares ways to decode: beam search and sampling, with both models."""
    with _shipped() as (weights, sources):
        shipped = _ways(weights, Case(sources, rows, _TO_THE_END), rounds)
    with _base() as weights:
        case = Case(random_sources(2 * rows * available_cores()), rows, FORCED)
        return {"sentences": shipped, "marian": _ways(weights, case, min(rounds, 3))}


def _ways(weights: Weights, case: Case, rounds: int) -> list[dict[str, Any]]:
    tables = []
    for name, changed in _WAYS.items():
        way = replace(case, options=replace(case.options, **changed))
        drawn = way.options.sampling is not None
        table = compare(builds(weights, way), way.sources, way.rows, rounds, may_differ=drawn)
        tables.append(table | {"name": name})
    return tables


def decoding_tables(report: dict[str, list[dict[str, Any]]]) -> list[Table]:
    """Lays out what :func:`decoding` returned."""
    rows = report["marian"][0]["rows"]
    return [
        speed_table(f"{model}; {rows} sources on each core", report[name])
        for name, model in (
            ("marian", "Marian base shape"),
            ("sentences", "the shipped small model"),
        )
    ]
