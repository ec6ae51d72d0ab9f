"""Imported models: what an import costs, and how each engine starts and decodes.

The checkpoints have the shapes of T5-small and NLLB-600M, and random weights; CTranslate2 gets them
from our model. In each round every engine runs in a separate process, one after another, so that
no two are in memory together.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors

from bench import import_checkpoint
from bench.comparison import check_equal, equal_share, take_turns
from bench.drivers import Driver, Rows, gc_freeze
from bench.drivers.server_process import proportional_bytes
from bench.drivers.subprocess_driver import RemoteObject
from bench.drivers.transformers import random_model
from bench.models import MARIAN_BASE, NLLB_600M, T5_SMALL, numbered_words, random_sources
from bench.tables import Table, shown, spread_of_ratios
from seqserve.processes import available_cores
from seqserve_export.options import Precision
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.loading import load
from seqserve_model.vocabulary import CONTROL_TOKENS
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.text.vocabulary import EOS

_ROWS, _LENGTH = 8, 32
"""Sources in flight on each core, target tokens of each."""
_BASE = "CTranslate2 int8"
_REFERENCE = "seqserve fp32"
_SENTENCES = 16
"""Of each proof: with random weights most targets are as long as they may be."""
_MB = 1e6
_PATIENCE_S = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """The cost of one run, and its output."""

    ready_s: float
    """From the start of the process until the model is loaded; its files are in the system's
    cache."""
    resident_bytes: int
    """In RAM after decoding, pages of mapped files included."""
    seconds: float
    rows: Rows

    @property
    def tokens_per_s(self) -> float:
        """Speed of decoding alone."""
        return sum(map(len, self.rows)) / self.seconds


SHAPES = {"T5-small": T5_SMALL, "NLLB-600M": NLLB_600M}


@torch.no_grad()
def write(shape: str, folder: Path) -> None:
    """Writes a checkpoint whose greedy targets vary with the source and seldom repeat a word."""
    torch.manual_seed(7)
    model = random_model(SHAPES[shape], "cpu", torch.float32)
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "embed_positions" not in name:
            weight.normal_(0.0, weight.size(-1) ** -0.5)
    decoder = model.get_decoder()
    last = getattr(decoder, "final_layer_norm", None) or decoder.layer_norm
    # With a tied output and a last norm of ones, a token is most like itself and repeats for ever.
    last.weight.normal_()
    if hasattr(decoder, "final_layer_norm"):
        last.weight.mul_(model.config.d_model**0.5)  # T5 divides by as much
    # Short vectors have small products with everything: no control token is ever the likeliest.
    model.get_output_embeddings().weight[: len(CONTROL_TOKENS)] *= 0.1
    model.save_pretrained(folder)
    tokenizer = numbered_words(model.config.vocab_size)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, model.config.eos_token_id)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def convert(checkpoint: Path, folder: Path) -> None:
    """Writes the same weights for CTranslate2."""
    from bench.drivers.ctranslate2 import CTranslate2Converter

    CTranslate2Converter(load(Checkpoint(checkpoint)).model).convert(str(folder))


def measure(rounds: int) -> list[dict[str, Any]]:
    """Measures every shape; names each stage, because the large one takes half an hour."""
    return [_measure(shape, min(rounds, 3)) for shape in SHAPES]


def _measure(shape: str, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        checkpoint, converted = folder / "checkpoint", folder / "converted"
        _say(f"{shape}: writing a checkpoint")
        _apart(write, shape, checkpoint)
        imports = [_import(checkpoint, folder, name.value) for name in _PRECISIONS]
        _say(f"{shape}: converting it for CTranslate2")
        _apart(convert, checkpoint, converted)
        vocabulary_size = Manifest.read(folder / "fp32" / "1").architecture.vocabulary_size
        config = replace(MARIAN_BASE, vocabulary_size=vocabulary_size)
        sources = random_sources(4 * _ROWS, config=config)
        engines = {
            "seqserve int8": folder / "int8" / "1",
            _REFERENCE: folder / "fp32" / "1",
            _BASE: converted,
            "CTranslate2 fp32": converted,
            "transformers fp32": checkpoint,
        }
        turns = {
            name: partial(_run, f"{shape}: {name}", name, place, sources)
            for name, place in engines.items()
        }
        runs = take_turns(turns, rounds)
    equal = {name: equal_share(runs[_REFERENCE][0].rows, runs[name][0].rows) for name in runs}
    check_equal(equal)
    return {
        "name": shape,
        "rows": _ROWS,
        "length": _LENGTH,
        "imports": imports,
        "peers": [
            {"name": name, "equal_share": equal[name], **_figures(several, runs[_BASE])}
            for name, several in runs.items()
        ],
    }


_PRECISIONS = (Precision.FP32, Precision.INT8)


def _run(stage: str, engine: str, folder: Path, sources: Rows) -> EngineRun:
    _say(stage)
    began_s = time.perf_counter()
    with RemoteObject(stage, Engine, engine, folder, _ROWS, _LENGTH) as process:
        process.receive(_PATIENCE_S)
        ready_s = time.perf_counter() - began_s
        seconds, rows = process.call("turn", sources, timeout_s=_PATIENCE_S)
        resident_bytes = proportional_bytes(process.pid)
    return EngineRun(ready_s=ready_s, resident_bytes=resident_bytes, seconds=seconds, rows=rows)


class Engine:
    """An engine that measures its turn itself, without pipes."""

    def __init__(self, engine: str, folder: Path, rows: int, length: int) -> None:
        """Starts it; each is imported alone, or it would count with another one's start."""
        layout = available_cores(), 1
        forced = DecodingOptions(max_decoding_length=length, min_decoding_length=length)
        name, _, precision = engine.partition(" ")
        self._driver: Driver[list[int]]
        if name == "seqserve":
            from bench.drivers.seqserve import SeqserveDriver

            self._driver = SeqserveDriver(folder, rows, forced)
        elif name == "CTranslate2":
            from bench.drivers.ctranslate2 import CTranslate2Driver

            precision = precision.replace("fp32", "float32")
            self._driver = CTranslate2Driver(folder, precision, layout, rows, forced)
        else:
            from bench.drivers.transformers import TransformersDriver

            self._driver = TransformersDriver.load(folder, rows, length, layout)
        gc_freeze()

    def turn(self, sources: Rows) -> tuple[float, Rows]:
        """Returns the seconds and the targets of one decoding."""
        began_s = time.perf_counter()
        targets = self._driver.decode(sources)
        return time.perf_counter() - began_s, targets


def _apart(make: Callable[..., None], *arguments: Any) -> None:
    with RemoteObject(make.__name__, make, *arguments) as process:
        process.receive(_PATIENCE_S)


def _import(checkpoint: Path, repository: Path, precision: str) -> dict[str, Any]:
    _say(f"importing at {precision}")
    done = import_checkpoint.run(
        checkpoint, repository, precision, sentences=_SENTENCES, is_checked=False
    )
    return {
        "precision": precision,
        "seconds": done.seconds,
        "peak_mb": done.peak_bytes / _MB,
        "checkpoint_mb": (checkpoint / "model.safetensors").stat().st_size / _MB,
    }


def _figures(runs: list[EngineRun], base: list[EngineRun]) -> dict[str, Any]:
    speeds, others = ([run.tokens_per_s for run in each] for each in (runs, base))
    return {
        "tokens_per_s": statistics.median(speeds),
        "ready_s": statistics.median(run.ready_s for run in runs),
        "resident_mb": statistics.median(run.resident_bytes for run in runs) / _MB,
        "ratio": spread_of_ratios(speeds, others),
    }


def _say(stage: str) -> None:
    print(time.strftime("%H:%M:%S"), stage, file=sys.stderr, flush=True)


def tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`measure` returned: a table for each shape."""
    return [_table(shape) for shape in report]


def _table(shape: dict[str, Any]) -> Table:
    imports = {
        f"seqserve {entry['precision']}": "{seconds:.0f} s, {peak_mb:,.0f} MB".format_map(entry)
        for entry in shape["imports"]
    }
    size = shape["imports"][0]["checkpoint_mb"]
    columns = {
        f"{shape['name']}'s shape, a checkpoint of {size:,.0f} MB": "{name}",
        "import": "{cost}",
        "start": "{ready_s:.1f} s",
        "memory": "{resident_mb:,.0f} MB",
        "tokens/s": "{tokens_per_s:,.0f}",
        f"times {_BASE}": "{times}",
        "same as at fp32": "{equal_share:.0%}",
    }
    return Table.of(
        columns,
        [
            {**peer, "cost": imports.get(peer["name"], ""), "times": shown(peer["ratio"])}
            for peer in shape["peers"]
        ],
        f"{shape['rows']} sources in flight on each core, {shape['length']} target tokens.",
    )
