"""The nodes of a graph of ONNX."""

from collections.abc import Iterator

import onnx


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Lists the nodes of a graph and of its branches."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)
