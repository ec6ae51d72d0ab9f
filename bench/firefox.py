"""Compares with Marian on a model of Firefox: English to Portuguese, the tiny student."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench import online
from bench.beside_marian import ROWS, compare_layouts, run_import
from bench.native_marian import NativeModel, student
from bench.sentences import everyday, news

_IMPORTED = 120
"""Sentences of the proof."""
BASE = "Marian int8"
"""The server that rates are measured by."""


def measure(rounds: int, plan: online.Plan) -> dict[str, Any]:
    """Measures engines in turn, then servers, and prints each table.

    Args:
        rounds: Turns of each engine.
        plan: How servers are measured; rates are shares of what Marian's can answer.

    Raises:
        SystemExit: Marian's environment is missing.
        CalledProcessError: An import failed.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model, known = student("enpt", folder), everyday()[:_IMPORTED]
        artifacts = {
            precision: run_import(model, folder, precision, known, "seqserve_import.command")
            for precision in model.models
        }
        tables = []
        for name, texts in (("everyday", everyday()), ("news", news())):
            tables += compare_layouts(name, model, artifacts, texts, rounds)
        servers = _serve(model, artifacts["int8"], plan, folder)
        online.print_table(servers)
        return {"engines": tables, "servers": servers}


def _serve(model: NativeModel, artifact: Path, plan: online.Plan, folder: Path) -> dict[str, Any]:
    """Compares servers on everyday sentences, in eight bits with the shortlist."""
    options = model.options("int8", has_shortlist=True, rows=ROWS)
    delay = ["--delay-ms", str(plan.delay_ms)]
    servers = [
        online.our_server(artifact, folder),
        (BASE, "bench.marian_batcher", [*delay, "--", *options]),
    ]
    series = online.take_turns(servers, everyday(), plan, folder)
    return online.report_of("Firefox's English to Portuguese", series, plan)
