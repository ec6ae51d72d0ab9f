"""Exports without the scorer graph, which takes most of the time to trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from seqserve_export import program
from seqserve_model.transformer import Transformer


@contextmanager
def steps_only() -> Iterator[None]:
    """Leaves the scorer graph out of exports within the context."""
    programs = program.programs

    def without_scorer(model: Transformer) -> dict[str, program.Program]:
        graphs = programs(model)
        del graphs["scorer.onnx"]
        return graphs

    with mock.patch.object(program, "programs", without_scorer):
        yield
