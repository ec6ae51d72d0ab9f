"""Models whose graphs fail or hang when they read a certain token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tests.e2e.babble import NAME
from tests.e2e.test_lifecycle import copy_version

from seqserve_server.contract.manifest import Manifest, digest_of

_FAR = 1 << 40

Trap = Callable[[onnx.GraphProto], list[onnx.NodeProto]]
"""Makes nodes from ``trap_met``, 1 at the token and 0 elsewhere, to ``trap_zeros``."""


def fails(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Makes a Gather with an index out of range."""
    graph.initializer.extend([_constant("trap_far", _FAR), _constant("trap_table", [0])])
    return [
        helper.make_node("Mul", ["trap_met", "trap_far"], ["trap_index"]),
        helper.make_node("Gather", ["trap_table", "trap_index"], ["trap_zeros"]),
    ]


def hangs(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Makes a Loop that never ends in practice."""
    graph.initializer.extend([_constant("trap_far", _FAR), _constant("trap_start", 0)])
    on, count = "trap_on", "trap_count"
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["trap_go_on"], [on]),
            helper.make_node("Identity", ["trap_count_before"], [count]),
        ],
        "trap_body",
        [
            helper.make_tensor_value_info("trap_iteration", TensorProto.INT64, []),
            helper.make_tensor_value_info("trap_go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("trap_count_before", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info(on, TensorProto.BOOL, []),
            helper.make_tensor_value_info(count, TensorProto.INT64, []),
        ],
    )
    return [
        helper.make_node("ReduceMax", ["trap_met"], ["trap_any"], keepdims=0),
        helper.make_node("Mul", ["trap_any", "trap_far"], ["trap_iterations"]),
        helper.make_node("Loop", ["trap_iterations", "", "trap_start"], ["trap_zeros"], body=body),
    ]


def publish_trap(
    repository: Path, models: Path, version: int, file: str, token_id: int, trap: Trap
) -> None:
    """Makes a trapped version of ``babble/1`` with correct hashes.

    Args:
        repository: Where ``babble/1`` comes from.
        models: Repository of the server.
        version: Number of the version.
        file: ``encoder.onnx``, which reads sources, or ``decoder.onnx``, which reads the last
            tokens.
        token_id: Token id that springs the trap.
        trap: Makes the nodes that fail or hang.
    """
    folder = copy_version(repository, models.parent / "draft", version)
    name_of_tokens = {"encoder.onnx": "source", "decoder.onnx": "tokens"}[file]
    model = onnx.load(folder / file, load_external_data=False)
    graph = model.graph
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == name_of_tokens:
                node.input[index] = "trap_tokens"
    graph.initializer.append(_constant("trap_token", token_id))
    nodes = [
        helper.make_node("Equal", [name_of_tokens, "trap_token"], ["trap_is_met"]),
        helper.make_node("Cast", ["trap_is_met"], ["trap_met"], to=TensorProto.INT64),
        *trap(graph),
        helper.make_node("Add", [name_of_tokens, "trap_zeros"], ["trap_tokens"]),
    ]
    for index, node in enumerate(nodes):
        graph.node.insert(index, node)
    onnx.save(model, folder / file)
    manifest = Manifest.read(folder)
    files = manifest.files | {file: digest_of(folder / file)}
    replace(manifest, files=files).write(folder)
    place = models / NAME / str(version)
    place.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(place)


def _constant(name: str, value: int | list[int]) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, np.int64), name)
