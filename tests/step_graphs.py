"""Exports encoder and decoder only: the scorer takes most of the time to trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from seqserve_export import graph_files
from seqserve_export.program import Program, programs
from seqserve_model.transformer import Transformer


@contextmanager
def steps_only() -> Iterator[None]:
    """Leaves the scorer graph out of every export inside the block."""

    def some(model: Transformer) -> dict[str, Program]:
        graphs = programs(model)
        del graphs["scorer.onnx"]
        return graphs

    with mock.patch.object(graph_files, "programs", some):
        yield
