"""Exports without the scorer, the graph that takes longest to trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from seqserve_export.program import PROGRAMS


@contextmanager
def steps_only() -> Iterator[None]:
    """Leaves the scorer out of exports made meanwhile."""
    with mock.patch.dict(PROGRAMS):
        del PROGRAMS["scorer.onnx"]
        yield
