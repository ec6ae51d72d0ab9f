"""Compares with Marian on a trained model of ours, whose decoder is recurrent as a student's is.

Marian gets the weights of the fp32 version in its own files, and the token ids of our tokenizer.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.artifacts import newest
from bench.beside_marian import check_words, compare_layouts
from bench.sentences import everyday
from bench.to_marian import write
from seqserve_export.restore import restore
from seqserve_server.contract.tokenizer import Tokenizer

MODEL = Path("models/en-de")


def measure(rounds: int, model: Path = MODEL) -> list[dict[str, Any]]:
    """Measures both engines in turn, and prints each table.

    Args:
        rounds: Turns of each engine.
        model: Folder of versions, recurrent ones at fp32 and at int8 among them.

    Raises:
        SystemExit: There are none, Marian's environment is missing, or words differ at fp32.
    """
    artifacts = {
        precision: newest(model, precision, is_recurrent=True) for precision in ("fp32", "int8")
    }
    with tempfile.TemporaryDirectory() as place:
        tokenizer = Tokenizer.load(artifacts["fp32"] / "tokenizer.json")
        native = write(restore(artifacts["fp32"]), Path(place), tokenizer)
        tables = compare_layouts("everyday", native, artifacts, everyday(), rounds)
    for table in tables:
        check_words(table)
    return tables
