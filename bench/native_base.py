"""Compares with Marian on random weights of Marian's base shape, in Marian's own files.

``seqserve import`` reads them, so both engines compute one network, which their words show. The end
token never wins: every target has as many tokens as Marian allows, a multiple of its source's.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.beside_marian import check_words, compare, print_table, run_import
from bench.marian import MARIAN_BASE, marian_base
from bench.to_marian import CONVENTIONS, write
from seqserve_model.vocabulary import CONTROL_TOKENS
from seqserve_server.front.cores import available_cores

_SOURCE_TOKENS, _TARGET_TOKENS = 16, 32
_PROVEN = 16
"""Sentences of the proof."""
_CONFIG = replace(MARIAN_BASE, **CONVENTIONS)


def measure(rows: list[int], rounds: int) -> list[dict[str, Any]]:
    """Measures both engines in turn, and prints each table.

    Args:
        rows: Sources in flight on each core, each number a table.
        rounds: Turns of each engine.

    Raises:
        SystemExit: Marian's environment is missing, or the engines' words differ at fp32.
        CalledProcessError: An import failed.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        written = write(marian_base(_CONFIG), folder)
        model = replace(written, length_factor=_TARGET_TOKENS / _SOURCE_TOKENS)
        # What random weights lose by rounding says nothing.
        artifacts = {
            precision: run_import(model, folder, precision, _texts(_PROVEN), "bench.unjudged")
            for precision in model.models
        }
        tables = []
        for count in rows:
            cores = available_cores() if count > 1 else 1
            table = compare(
                model,
                artifacts,
                # Two full batches for each worker.
                _texts(max(2 * count * cores, 8)),
                cores=cores,
                rows=count,
                rounds=rounds,
                length=_TARGET_TOKENS,
            )
            print_table("Marian base shape in its own files", table)
            check_words(table)
            tables.append(table)
        return tables


def _texts(count: int) -> list[str]:
    draw = random.Random(count)
    numbers = range(len(CONTROL_TOKENS), _CONFIG.vocabulary_size)
    # The end token is one of the source's.
    return [
        " ".join(f"t{number}" for number in draw.choices(numbers, k=_SOURCE_TOKENS - 1))
        for _ in range(count)
    ]
