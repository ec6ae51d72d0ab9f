"""Exports that take less time than a user's, or keep more: the decoder as it was traced."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import onnx
from onnx import ModelProto
from onnxscript import ir

from seqserve_export import graph_files, tracing
from seqserve_export.program import PROGRAMS, Program
from seqserve_server.artifact.files import digest_of
from seqserve_server.artifact.manifest import CANDIDATES, DRAFT, Manifest


@contextmanager
def steps_only() -> Iterator[None]:
    """Leaves the scorer, the graph that takes longest to trace, out of exports made meanwhile.

    Ends of steps that have no weights are the same for all models of a vocabulary: traced once.
    """
    with mock.patch.dict(PROGRAMS), mock.patch.object(tracing, "_traced", _traced_once):
        del PROGRAMS["scorer.onnx"]
        yield


_trace = tracing._traced
_ENDS: dict[object, bytes] = {}


def _traced_once(program: Program) -> ir.Model:
    if program.module.state_dict():
        return _trace(program)
    kind = (
        type(program.module),
        *((each.example.dtype, each.example.shape, each.free) for each in program.inputs),
    )
    if kind not in _ENDS:
        _ENDS[kind] = ir.serde.serialize_model(_trace(program)).SerializeToString()
    return ir.serde.deserialize_model(onnx.load_from_string(_ENDS[kind]))


@contextmanager
def keeping_decoder(path: Path) -> Iterator[None]:
    """Writes the decoder of an export as it was traced, before final graphs are made of it."""
    finish = graph_files.step_graphs

    def keep(decoder: ModelProto, precision: str) -> dict[str, ModelProto]:
        onnx.save(decoder, path)
        return finish(decoder, precision)

    with mock.patch.object(graph_files, "step_graphs", keep):
        yield


def with_gathering_steps(folder: Path, traced: Path, place: Path) -> Path:
    """Copies an artifact; its steps gather the weights of candidates, as those of half floats do.

    Args:
        folder: Of the artifact.
        traced: Its decoder as it was traced.
        place: The new folder.
    """
    shutil.copytree(folder, place)
    decoder = onnx.load(traced, load_external_data=False)
    graphs = graph_files.step_graphs(decoder, "fp16")
    graph_files.save_graphs(graphs, place)
    manifest = Manifest.read(folder)
    files = {name: digest_of(place / name) for name in manifest.files.keys() - {CANDIDATES, DRAFT}}
    replace(manifest, files=files).write(place)
    return place
