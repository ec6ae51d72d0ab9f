"""Compares models that were imported: what an import costs, and how each engine starts and decodes.

The checkpoints have the shapes of T5-small and NLLB-600M, and random weights; CTranslate2 gets them
from our model. In each round every engine runs in a process of its own, one after another, so that
no two are in memory together.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import checkpoints
from bench.comparison import MIN_EQUAL_SHARE, equal_share, shown, spread
from bench.marian import MARIAN_BASE, sources
from bench.provenance import print_signature
from bench.turn import Turn, take
from seqserve_export.precision import Precision
from seqserve_server.contract.manifest import Manifest

_BASE = "CTranslate2 int8"
_WHOLE = "seqserve fp32"
_PRECISIONS = (Precision.FP32, Precision.INT8)
_SENTENCES = 16
"""Of each proof: with random weights most targets are as long as they may be."""
_MB = 1e6


def measure(shape: str, rounds: int, *, rows: int, length: int) -> dict[str, Any]:
    """Measures one shape; names each stage, because that of the large one takes half an hour.

    Args:
        shape: One of :data:`bench.checkpoints.SHAPES`.
        rounds: Turns of each engine.
        rows: Sources in flight on each core.
        length: Target tokens of each.

    Raises:
        SystemExit: An engine failed, or its outputs at fp32 differ, and so cannot be compared.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        checkpoint = folder / "checkpoint"
        # In processes of their own, which take their memory with them.
        _say(f"{shape}: writing a checkpoint")
        _run_apart(checkpoints.write, shape, checkpoint)
        imports = [_import(checkpoint, folder, precision) for precision in _PRECISIONS]
        _say(f"{shape}: converting it for CTranslate2")
        _run_apart(checkpoints.convert, checkpoint, folder / "converted")
        engines = {
            "seqserve int8": ("seqserve", folder / "int8" / "1"),
            _WHOLE: ("seqserve", folder / "fp32" / "1"),
            _BASE: (_BASE, folder / "converted"),
            "CTranslate2 fp32": ("CTranslate2 fp32", folder / "converted"),
            "transformers fp32": ("transformers fp32", checkpoint),
        }
        vocabulary_size = Manifest.read(folder / "fp32" / "1").architecture.vocabulary_size
        config = replace(MARIAN_BASE, vocabulary_size=vocabulary_size)
        some = sources(4 * rows, config=config)
        turns: dict[str, list[Turn]] = {name: [] for name in engines}
        for turn in range(1, rounds + 1):
            for name, engine in engines.items():
                _say(f"{shape}: {name}, turn {turn} of {rounds}")
                turns[name].append(take(*engine, some, rows=rows, length=length))
    return {
        "name": shape,
        "rows": rows,
        "length": length,
        "imports": imports,
        "peers": [_figures(name, turns) for name in engines],
    }


def _run_apart(function: Any, *arguments: Any) -> None:
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{function.__name__}: ended with {process.exitcode}")


def _import(checkpoint: Path, repository: Path, precision: Precision) -> dict[str, Any]:
    """Runs ``seqserve import``; random weights may lose more by rounding than it allows."""
    _say(f"importing at {precision.value}")
    command = [
        *(sys.executable, "-m", "bench.unjudged", str(checkpoint)),
        *("--name", precision.value, "--precision", precision.value),
        *("--model-repository", str(repository), "--sentences", str(_SENTENCES)),
    ]
    began_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the import of {checkpoint} ended with {process.returncode}")
    return {
        "precision": precision.value,
        "seconds": time.perf_counter() - began_s,
        # Linux counts in kibibytes.
        "peak_mb": usage.ru_maxrss * 1024 / _MB,
        "checkpoint_mb": (checkpoint / "model.safetensors").stat().st_size / _MB,
    }


def _figures(name: str, turns: dict[str, list[Turn]]) -> dict[str, Any]:
    """Gives medians, and ratios within the rounds."""
    ours, base = turns[name], turns[_BASE]
    share = equal_share(turns[_WHOLE][0].rows, ours[0].rows)
    if share < MIN_EQUAL_SHARE and "int8" not in name:
        raise SystemExit(f"{name} agrees on {share:.1%} of sources: not comparable")
    return {
        "name": name,
        "tokens_per_s": statistics.median(turn.tokens_per_s for turn in ours),
        "ready_s": statistics.median(turn.ready_s for turn in ours),
        "resident_mb": statistics.median(turn.resident_bytes for turn in ours) / _MB,
        "equal_share": share,
        "ratio": spread(
            [our.tokens_per_s / their.tokens_per_s for our, their in zip(ours, base, strict=True)]
        ),
    }


def _say(stage: str) -> None:
    print(time.strftime("%H:%M:%S"), stage, file=sys.stderr, flush=True)


def print_table(table: dict[str, Any]) -> None:
    """Prints what :func:`measure` gave."""
    print(f"\n{table['name']}, random weights, {table['rows']} sources in flight on each core,")
    print(f"{table['length']} target tokens\n")
    for entry in table["imports"]:
        print(
            f"  import {entry['precision']}: {entry['seconds']:.0f} s, peak"
            f" {entry['peak_mb']:,.0f} MB for a checkpoint of {entry['checkpoint_mb']:,.0f} MB"
        )
    print(f"\n  {'engine':20}{'start':>8}{'memory':>12}{'tokens/s':>10}   times {_BASE}")
    for peer in table["peers"]:
        print(
            f"  {peer['name']:20}{peer['ready_s']:6.1f} s{peer['resident_mb']:9,.0f} MB"
            f"{peer['tokens_per_s']:10,.0f}   {shown(peer['ratio'], 5)}"
            f" {peer['equal_share']:7.1%}"
        )
    print_signature()
