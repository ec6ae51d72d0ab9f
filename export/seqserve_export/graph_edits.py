"""Edits of graphs: what nodes read, which of them a value needs, other names."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

M = TypeVar("M", bound=Message)


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """Lists a graph and all branches within, at any depth."""
    yield graph
    for node in graph.node:
        for branch in branches_of(node):
            yield from graphs_of(branch)


def branches_of(node: NodeProto) -> Iterator[GraphProto]:
    """Lists the graphs that a node chooses from."""
    return (part.g for part in node.attribute if part.HasField("g"))


def tensors_of(graph: GraphProto) -> dict[str, TensorProto]:
    """Lists the constants of a graph and of its branches by their names."""
    return {tensor.name: tensor for part in graphs_of(graph) for tensor in part.initializer}


def needed(nodes: Iterable[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """Lists the nodes that outputs are computed by, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(list(nodes)):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(reads(node))
    return kept[::-1]


def reads(node: NodeProto) -> set[str]:
    """Lists what a node reads, its branches too."""
    read = set(node.input)
    for graph in branches_of(node):
        read.update(value.name for value in graph.output)
        read.update(name for inner in graph.node for name in reads(inner))
    return read


def rename(nodes: Iterable[NodeProto], before: str, after: str) -> None:
    """Renames a value in nodes and their branches, wherever it is computed or read."""
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [after if name == before else name for name in names]
        for branch in branches_of(node):
            rename(branch.node, before, after)


def replace(graph: GraphProto, **fields: Iterable[Message]) -> None:
    """Sets the nodes, inputs or other lists of a graph; they may come from the graph itself."""
    for field, values in fields.items():
        copies = copied(values)
        graph.ClearField(field)
        getattr(graph, field).extend(copies)


def copied(messages: Iterable[M]) -> list[M]:
    """Copies messages."""
    copies = []
    for message in messages:
        copies.append(type(message)())
        copies[-1].CopyFrom(message)
    return copies


def dims_of(value: ValueInfoProto) -> Any:
    """Returns the axes of an input or output; to change them changes it."""
    return value.type.tensor_type.shape.dim
