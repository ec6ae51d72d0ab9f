"""Exports that take less time than a user's: without the scorer, and operators are parsed once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest import mock

from onnxscript import TracedOnnxFunction

from seqserve_export.program import PROGRAMS

_signature_of = cache(TracedOnnxFunction.function_ir.fget)


@contextmanager
def operators_parsed_once() -> Iterator[None]:
    """Keeps the signatures of torch's operators, which its exporter parses again for each graph.

    That is a quarter of the time of an export, and changes nothing in a graph.
    """
    with mock.patch.object(TracedOnnxFunction, "function_ir", property(_signature_of)):
        yield


@contextmanager
def steps_only() -> Iterator[None]:
    """Leaves the scorer, the graph that takes longest to trace, out of exports made meanwhile."""
    with operators_parsed_once(), mock.patch.dict(PROGRAMS):
        del PROGRAMS["scorer.onnx"]
        yield
