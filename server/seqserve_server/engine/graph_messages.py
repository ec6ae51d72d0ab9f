"""The parts of an ONNX file that the engine checks, or changes for a GPU; the rest stays as it is.

A graph may name any path for its weights, and ONNX Runtime opens it: older releases wherever it
leads, newer ones anywhere in the graph's folder. So :func:`check_references` compares the names
with the manifest's first, without running the graph.

Source: onnx/onnx.proto of https://github.com/onnx/onnx, and docs/ExternalData.md there.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from seqserve_server.contract.errors import ArtifactError

_NUMBER, _INTEGER, _INTEGERS = 1, 2, 7

NUMPY_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 10: np.float16}
"""Numpy's types by the kinds of tensors."""

_MESSAGES = """
Model: graph 7 Graph, training 20 Training*, functions 25 Function*
Graph: nodes 1 Node*, name 2 string, tensors 5 Tensor*, inputs 11 Value*, outputs 12 Value*
Graph: known_shapes 13 Value*, sparse 15 Sparse*
Training: initialization 1 Graph, algorithm 2 Graph
Function: nodes 7 Node*, attributes 11 Attribute*
Node: inputs 1 string*, outputs 2 string*, name 3 string, kind 4 string, attributes 5 Attribute*
Node: domain 7 string
Attribute: name 1 string, number 2 float, integer 3 int64, tensor 5 Tensor, graph 6 Graph
Attribute: integers 8 int64*, tensors 10 Tensor*, graphs 11 Graph*, type 20 int32, sparse 22 Sparse
Attribute: sparses 23 Sparse*
Value: name 1 string, type 2 Type
Type: tensor 1 TensorType
TensorType: kind 1 int32, shape 2 Shape
Shape: dims 1 Dim*
Dim: size 1 int64, name 2 string
Tensor: dims 1 int64*, kind 2 int32, name 8 string, raw 9 bytes, external 13 Entry*
Sparse: values 1 Tensor, indices 2 Tensor
Entry: key 1 string, value 2 string
"""
"""Messages and fields of onnx.proto, each field with its number and type; names are ours.

Every field is here through which a graph can name a file of weights.
"""


def _declare() -> list[Any]:
    # With presence, so that a zero that was written stays.
    file = FileDescriptorProto(name="onnx.proto", package="onnx", syntax="proto2")
    messages: dict[str, Any] = {}
    for line in _MESSAGES.strip().splitlines():
        name, _, fields = line.partition(": ")
        if name not in messages:
            messages[name] = file.message_type.add(name=name)
        for field, number, kind in map(str.split, fields.split(", ")):
            label = "LABEL_REPEATED" if kind.endswith("*") else "LABEL_OPTIONAL"
            declared = messages[name].field.add(name=field, number=int(number), label=label)
            kind = kind.rstrip("*")
            if kind[0].isupper():
                declared.type_name = f".onnx.{kind}"
            else:
                declared.type = getattr(declared, f"TYPE_{kind.upper()}")
    # A separate pool: the process may have the real one too.
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = pool.FindMessageTypeByName
    names = ("Model", "Node", "Value", "TensorType", "Entry")
    return [message_factory.GetMessageClass(find(f"onnx.{name}")) for name in names]


MODEL, _NODE, _VALUE, _TENSOR_TYPE, ENTRY = _declare()


def check_references(path: Path, files: Collection[str]) -> None:
    """Raises ArtifactError if a graph takes weights from a file that was not checked."""
    try:
        model = MODEL.FromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise ArtifactError(f"{path}: cannot be read as a graph: {error}") from None
    for name in _locations(model):
        if name not in files:
            raise ArtifactError(
                f"{path}: takes weights from {name!r}, which its manifest does not name; export"
                " the model again"
            )


def _locations(message: Message) -> Iterator[str]:
    """Yields the file names in a message, at any depth."""
    if isinstance(message, ENTRY):
        if message.key == "location":
            yield message.value
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if isinstance(value, Message) else value:
                yield from _locations(part)


def make_node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    """Makes a node; an attribute is a number, or a list of integers."""
    node = _NODE(kind=kind, inputs=inputs, outputs=outputs)
    for name, value in attributes.items():
        if isinstance(value, float):
            node.attributes.add(name=name, number=value, type=_NUMBER)
        elif isinstance(value, int):
            node.attributes.add(name=name, integer=value, type=_INTEGER)
        else:
            node.attributes.add(name=name, integers=value, type=_INTEGERS)
    return node


def make_value(name: str, kind: int, dims: Sequence[int | str]) -> Any:
    """Declares an input; a dimension is a size or has a name."""
    value = _VALUE(name=name)
    value.type.tensor.CopyFrom(_TENSOR_TYPE(kind=kind))
    for dim in dims:
        value.type.tensor.shape.dims.add(**{"name" if isinstance(dim, str) else "size": dim})
    return value


def graphs_of(graph: Any) -> Iterator[Any]:
    """Lists a graph and all branches within, at any depth."""
    yield graph
    for node in graph.nodes:
        for branch in branches_of(node):
            yield from graphs_of(branch)


def branches_of(node: Any) -> Iterator[Any]:
    """Lists the graphs that a node chooses from."""
    return (part.graph for part in node.attributes if part.HasField("graph"))


def needed(nodes: Iterable[Any], outputs: Sequence[str]) -> list[Any]:
    """Lists the nodes that outputs are computed by, in order."""
    needed, kept = set(outputs), []
    for node in reversed(list(nodes)):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(reads(node))
    return kept[::-1]


def reads(node: Any) -> set[str]:
    """Lists what a node reads, its branches too."""
    read = set(node.inputs)
    for graph in branches_of(node):
        read.update(value.name for value in graph.outputs)
        read.update(name for inner in graph.nodes for name in reads(inner))
    return read


def rename(nodes: Iterable[Any], before: str, after: str) -> None:
    """Renames a value in nodes and their branches, wherever it is computed or read."""
    for node in nodes:
        for names in (node.inputs, node.outputs):
            for index, name in enumerate(names):
                if name == before:
                    names[index] = after
        for branch in branches_of(node):
            rename(branch.nodes, before, after)


def put(message: Any, **fields: Iterable[Any]) -> None:
    """Sets fields that hold many messages; they may come from the message itself."""
    for field, values in fields.items():
        copies = type(message)()
        getattr(copies, field).extend(values)
        message.ClearField(field)
        getattr(message, field).extend(getattr(copies, field))
