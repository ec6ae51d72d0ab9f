"""Exports without the scorer, the graph that takes longest to trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from seqserve_export import program
from seqserve_model.transformer import Transformer


@contextmanager
def steps_only() -> Iterator[None]:
    """Leaves the scorer out of exports made meanwhile."""
    programs = program.programs

    def some(model: Transformer) -> dict[str, program.Program]:
        graphs = programs(model)
        del graphs["scorer.onnx"]
        return graphs

    with mock.patch.object(program, "programs", some):
        yield
