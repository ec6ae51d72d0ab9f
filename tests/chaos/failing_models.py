"""Models whose graphs fail or hang when they read a certain token."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tests.support.endless_model import NAME, copy_version

from seqserve_server.artifact.files import digest_of
from seqserve_server.artifact.manifest import Manifest

_FAR = 1 << 40

Fault = Callable[[onnx.GraphProto], list[onnx.NodeProto]]
"""Makes nodes from ``fault_met``, 1 at the token and 0 elsewhere, to ``fault_zeros``."""


def fails(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Makes a Gather with an index out of range."""
    graph.initializer.extend([_constant("fault_far", _FAR), _constant("fault_table", [0])])
    return [
        helper.make_node("Mul", ["fault_met", "fault_far"], ["fault_index"]),
        helper.make_node("Gather", ["fault_table", "fault_index"], ["fault_zeros"]),
    ]


def hangs(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Makes a Loop that never ends in practice."""
    graph.initializer.extend([_constant("fault_far", _FAR), _constant("fault_start", 0)])
    on, count = "fault_on", "fault_count"
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["fault_go_on"], [on]),
            helper.make_node("Identity", ["fault_count_before"], [count]),
        ],
        "fault_body",
        [
            helper.make_tensor_value_info("fault_iteration", TensorProto.INT64, []),
            helper.make_tensor_value_info("fault_go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("fault_count_before", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info(on, TensorProto.BOOL, []),
            helper.make_tensor_value_info(count, TensorProto.INT64, []),
        ],
    )
    return [
        helper.make_node("ReduceMax", ["fault_met"], ["fault_any"], keepdims=0),
        helper.make_node("Mul", ["fault_any", "fault_far"], ["fault_iterations"]),
        helper.make_node(
            "Loop", ["fault_iterations", "", "fault_start"], ["fault_zeros"], body=body
        ),
    ]


def publish_failing(
    repository: Path, models: Path, version: int, file: str, token_id: int, fault: Fault
) -> None:
    """Makes a failing version of ``endless/1`` with correct hashes.

    Args:
        repository: Where ``endless/1`` comes from.
        models: Repository of the server.
        version: Number of the version.
        file: ``encoder.onnx``, which reads sources, or ``decoder.onnx``, which reads the last
            tokens.
        token_id: Token id at which the graph fails or hangs.
        fault: Makes the nodes that fail or hang.
    """
    folder = copy_version(repository, models.parent / "draft", version)
    name_of_tokens = {"encoder.onnx": "source", "decoder.onnx": "tokens"}[file]
    model = onnx.load(folder / file, load_external_data=False)
    graph = model.graph
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == name_of_tokens:
                node.input[index] = "fault_tokens"
    graph.initializer.append(_constant("fault_token", token_id))
    nodes = [
        helper.make_node("Equal", [name_of_tokens, "fault_token"], ["fault_is_met"]),
        helper.make_node("Cast", ["fault_is_met"], ["fault_met"], to=TensorProto.INT64),
        *fault(graph),
        helper.make_node("Add", [name_of_tokens, "fault_zeros"], ["fault_tokens"]),
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
