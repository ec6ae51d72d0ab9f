"""Imported models: what an import costs, and how each engine starts and decodes.

The checkpoints have the shapes of T5-small and NLLB-600M, and random weights; CTranslate2 gets them
from our model. In each round every engine runs in a process of its own, one after another, so that
no two are in memory together.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from bench import import_checkpoint
from bench.drivers import Rows, engine_run
from bench.drivers.ctranslate2 import CTranslate2Converter
from bench.drivers.engine_run import EngineRun
from bench.models import MARIAN_BASE, numbered_words, random_sources
from bench.tables import Table, shown, spread_of_ratios
from bench.turns import check_equal, equal_share, take_turns
from seqserve_export.options import Precision
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.importing import load
from seqserve_model.vocabulary import CONTROL_TOKENS
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.text.vocabulary import EOS

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
"""The ids of our control tokens."""
_ROWS, _LENGTH = 8, 32
"""Sources in flight on each core, target tokens of each."""
_BASE = "CTranslate2 int8"
_REFERENCE = "seqserve fp32"
_SENTENCES = 16
"""Of each proof: with random weights most targets are as long as they may be."""
_MB = 1e6


def _t5_small() -> Any:
    """60 million weights; the defaults of transformers are its shape."""
    return T5ForConditionalGeneration(T5Config(vocab_size=32_128, **IDS))


def _nllb_600m() -> Any:
    """615 million weights, 262 million of them the one table of 256,206 words."""
    layers = {f"{stack}_layers": 12 for stack in ("encoder", "decoder")}
    heads = {f"{stack}_attention_heads": 16 for stack in ("encoder", "decoder")}
    inner = {f"{stack}_ffn_dim": 4096 for stack in ("encoder", "decoder")}
    config = M2M100Config(vocab_size=256_206, d_model=1024, **layers, **heads, **inner, **IDS)
    return M2M100ForConditionalGeneration(config)


SHAPES: dict[str, Callable[[], Any]] = {"T5-small": _t5_small, "NLLB-600M": _nllb_600m}


@torch.no_grad()
def write(shape: str, folder: Path) -> None:
    """Writes a checkpoint whose greedy targets vary with the source and seldom repeat a word."""
    torch.manual_seed(7)
    model = SHAPES[shape]().eval()
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
    CTranslate2Converter(load(Checkpoint(checkpoint)).model).convert(str(folder))


def measure(rounds: int) -> list[dict[str, Any]]:
    """Measures every shape; names each stage, because the large one takes half an hour.

    Raises:
        SystemExit: An import failed, or outputs at fp32 differ, and so cannot be compared.
        RuntimeError: An engine failed.
    """
    return [_measure(shape, min(rounds, 3)) for shape in SHAPES]


def _measure(shape: str, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        checkpoint, converted = folder / "checkpoint", folder / "converted"
        # In processes of their own, which take their memory with them.
        _say(f"{shape}: writing a checkpoint")
        _run_apart(write, shape, checkpoint)
        imports = [_import(checkpoint, folder, name.value) for name in _PRECISIONS]
        _say(f"{shape}: converting it for CTranslate2")
        _run_apart(convert, checkpoint, converted)
        vocabulary_size = Manifest.read(folder / "fp32" / "1").architecture.vocabulary_size
        config = replace(MARIAN_BASE, vocabulary_size=vocabulary_size)
        sources = random_sources(4 * _ROWS, config=config)
        engines = {
            "seqserve int8": ("seqserve", folder / "int8" / "1"),
            _REFERENCE: ("seqserve", folder / "fp32" / "1"),
            _BASE: (_BASE, converted),
            "CTranslate2 fp32": ("CTranslate2 fp32", converted),
            "transformers fp32": ("transformers fp32", checkpoint),
        }
        turns = {
            name: partial(_run, f"{shape}: {name}", *engine, sources)
            for name, engine in engines.items()
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
    return engine_run.run(engine, folder, sources, rows=_ROWS, length=_LENGTH)


def _run_apart(function: Any, *arguments: Any) -> None:
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{function.__name__}: ended with {process.exitcode}")


def _import(checkpoint: Path, repository: Path, precision: str) -> dict[str, Any]:
    """Imports a checkpoint; random weights may lose more by rounding than a real one."""
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
    """Computes medians, and ratios within the rounds."""
    return {
        "tokens_per_s": statistics.median(run.tokens_per_s for run in runs),
        "ready_s": statistics.median(run.ready_s for run in runs),
        "resident_mb": statistics.median(run.resident_bytes for run in runs) / _MB,
        "ratio": spread_of_ratios(
            [run.tokens_per_s for run in runs], [run.tokens_per_s for run in base]
        ),
    }


def _say(stage: str) -> None:
    print(time.strftime("%H:%M:%S"), stage, file=sys.stderr, flush=True)


def tables(report: list[dict[str, Any]]) -> list[Table]:
    """Lays out what :func:`measure` returned: a table for each shape."""
    return [_table(shape) for shape in report]


def _table(shape: dict[str, Any]) -> Table:
    imports = {f"seqserve {entry['precision']}": entry for entry in shape["imports"]}
    rows = []
    for peer in shape["peers"]:
        cost = imports.get(peer["name"])
        rows.append(
            [
                peer["name"],
                f"{cost['seconds']:.0f} s, {cost['peak_mb']:,.0f} MB" if cost else "",
                f"{peer['ready_s']:.1f} s",
                f"{peer['resident_mb']:,.0f} MB",
                f"{peer['tokens_per_s']:,.0f}",
                shown(peer["ratio"]),
                f"{peer['equal_share']:.0%}",
            ]
        )
    size = shape["imports"][0]["checkpoint_mb"]
    title = f"{shape['name']}'s shape, a checkpoint of {size:,.0f} MB"
    head = ["import", "start", "memory", "tokens/s", f"times {_BASE}", "same as at fp32"]
    return Table(
        [title, *head],
        rows,
        f"{shape['rows']} sources in flight on each core, {shape['length']} target tokens.",
    )
