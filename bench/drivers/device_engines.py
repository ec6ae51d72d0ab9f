"""Engines with one worker on one device, CPU or GPU; their rows in flight change from run to run.

Each is made in a separate process, by :class:`~bench.drivers.subprocess_driver.RemoteObject`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.drivers import Rows, gc_freeze
from seqserve_model.config import PositionScheme, TransformerConfig
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.gpu.runtime import open_runtime
from seqserve_server.engine.local_engine import deliver, generate
from seqserve_server.engine.observer import Observer
from seqserve_server.text.tokenizer import Tokenizer

_WARM_S = 0.3
"""How long an engine decodes before it is measured, at least."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of our engine, encoding left out."""

    rows: int
    seconds: float
    outside_s: float
    """The part of it that was spent outside ONNX Runtime."""


@dataclass(slots=True)
class Turn:
    """One turn of an engine."""

    tokens: int = 0
    seconds: float = 0.0
    steps: list[StepTime] = field(default_factory=list)
    """Of steps that encode nothing; only ours tells of them."""
    encoded_tokens: int = 0
    encode_s: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Speed on the clock."""
        return self.tokens / self.seconds


class _Model(Protocol):
    rows: int
    """Sources in flight; may change from one decoding to the next."""

    def decode(self, sources: Rows) -> Rows: ...


class DeviceEngine:
    """Decodes with a model, and measures it."""

    def __init__(self, model: _Model, observer: _Steps | None = None) -> None:
        self._model, self._observer = model, observer or _Steps()

    def warm_up(self, sources: Rows, rows: int) -> Rows:
        """Decodes all sources, again and again for a short time; returns the last targets."""
        self._model.rows = rows
        began_s = time.perf_counter()
        targets = self._model.decode(sources)
        while time.perf_counter() - began_s < _WARM_S:
            targets = self._model.decode(sources)
        gc_freeze()
        return targets

    def turn(self, sources: Rows, rows: int, seconds: float) -> Turn:
        """Decodes all sources once, or as often as ``seconds`` allow."""
        turn = self._observer.turn = Turn()
        self._model.rows = rows
        began_s = time.perf_counter()
        while turn.seconds < seconds:
            turn.tokens += sum(map(len, self._model.decode(sources)))
            turn.seconds = time.perf_counter() - began_s
        return turn


class _Steps(Observer):
    def __init__(self) -> None:
        self.turn = Turn()
        self._encoding_s = 0.0

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        self._encoding_s += duration_s
        self.turn.encoded_tokens += sum(lengths)
        self.turn.encode_s += duration_s

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        if not self._encoding_s:
            self.turn.steps.append(StepTime(rows, duration_s, outside_s))
        self._encoding_s = 0.0


def _forced(length: int, beam: int) -> DecodingOptions:
    forced = DecodingOptions(max_decoding_length=length, min_decoding_length=length)
    return replace(forced, beam_size=beam, return_scores=False)


class _Seqserve:
    """Our engine; another one for each number of rows."""

    def __init__(
        self, folder: Path, device: str, options: DecodingOptions, observer: Observer
    ) -> None:
        self._options, self._manifest = options, Manifest.load(folder)
        self._tokenizer = Tokenizer.of_artifact(folder, self._manifest)
        self._runtime = open_runtime(folder, self._manifest, Provider(device), threads=1)
        self._observer, self.rows, self._rows = observer, 0, 0
        self._engine: Engine | None = None

    def decode(self, sources: Rows) -> Rows:
        if self._engine is None or self.rows != self._rows:
            self._rows, self._engine = self.rows, self._started(self.rows)
        specs = [GenerateSpec(source=source, options=self._options) for source in sources]
        return [answer.best.token_ids for answer in generate(self._engine, specs)]

    def _started(self, rows: int) -> Engine:
        if self._engine:
            self._engine.stop()
            self._engine = None
            # Its objects are large, and frozen.
            gc_freeze()
        limits = EngineLimits(
            workers=1,
            slots=rows * self._options.beam_size,
            max_queue=1_000_000,
            # The others encode a whole batch at once.
            max_source_tokens_per_step=rows * self._manifest.limits.max_source_length,
        )
        engine = Engine(self._runtime, limits, deliver, self._observer, self._tokenizer.decode)
        engine.warm_up()
        engine.start()
        return engine


def seqserve(beam_size: int, folder: Path, device: str, length: int) -> DeviceEngine:
    """Loads an artifact."""
    observer = _Steps()
    return DeviceEngine(_Seqserve(folder, device, _forced(length, beam_size), observer), observer)


def ctranslate2(
    precision: str, beam_size: int, folder: Path, device: str, length: int
) -> DeviceEngine:
    """Loads a model of CTranslate2 at one of its precisions, by its name."""
    from bench.drivers.ctranslate2 import CTranslate2Driver

    layout, options = (1, 1), _forced(length, beam_size)
    return DeviceEngine(CTranslate2Driver(folder, precision, layout, 1, options, device))


def transformers(precision: str, folder: Path, device: str, length: int) -> DeviceEngine:
    """Draws a model of transformers with the shape of the artifact in a folder."""
    import torch

    from bench.drivers.transformers import TransformersDriver, random_model

    config = TransformerConfig.from_dict(Manifest.read(folder).architecture.config)
    model = random_model(config, device, getattr(torch, precision))
    return DeviceEngine(TransformersDriver(model, 1, length, (1, 1)))


Make = Callable[[Path, str, int], DeviceEngine]
"""Takes a folder, a device and the length of targets."""


@dataclass(frozen=True, slots=True)
class Kind:
    """An engine at a precision."""

    folder: str
    """Of its model."""
    make: Make


ARTIFACT, CONVERTED = "artifact", "converted"


def kinds(device: str, config: TransformerConfig, beam_size: int) -> dict[str, Kind]:
    """Lists what is compared, by name; CPUs compute nothing but ours in halves.

    T5 overflows fp16 elsewhere, so there the others take bf16. With beams, only CTranslate2 is
    compared.
    """
    half = "bfloat16" if config.positions is PositionScheme.T5 else "float16"
    half, integers = ("float32", "int8") if device == "cpu" else (half, f"int8_{half}")
    found = {"seqserve fp16": Kind(ARTIFACT, partial(seqserve, beam_size))}
    for precision in (half, integers):
        name = precision.replace("bfloat", "bf").replace("float", "fp")
        found[f"CTranslate2 {name}"] = Kind(CONVERTED, partial(ctranslate2, precision, beam_size))
    if beam_size == 1:
        name = half.replace("bfloat", "bf").replace("float", "fp")
        found[f"transformers {name}"] = Kind(ARTIFACT, partial(transformers, half))
    return found
