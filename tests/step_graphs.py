"""The graphs that a server steps through, without the one that takes most of the time to trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from seqserve_export import program
from seqserve_model.transformer import Transformer


@contextmanager
def steps_only() -> Iterator[None]:
    """Leaves the scorer-forced graph out of what is exported meanwhile."""
    programs = program.programs

    def some(model: Transformer) -> dict[str, program.Program]:
        graphs = programs(model)
        del graphs["scorer.onnx"]
        return graphs

    with mock.patch.object(program, "programs", some):
        yield
