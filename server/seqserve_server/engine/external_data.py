"""Finds the files that a graph takes its weights from, without running it.

A graph may name any path for them, and ONNX Runtime opens it: older releases wherever it leads,
newer ones anywhere in the graph's folder. So the names are compared with the manifest's first.
Source: onnx/onnx.proto of https://github.com/onnx/onnx, and docs/ExternalData.md there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from google.protobuf import message_factory, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from seqserve_server.contract.errors import ArtifactError

_HOLDS = {
    "Model": {"graph": (7, "Graph"), "training": (20, "Training"), "functions": (25, "Function")},
    "Graph": {"nodes": (1, "Node"), "tensors": (5, "Tensor"), "sparse": (15, "Sparse")},
    "Training": {"initialization": (1, "Graph"), "algorithm": (2, "Graph")},
    "Function": {"nodes": (7, "Node"), "attributes": (11, "Attribute")},
    "Node": {"attributes": (5, "Attribute")},
    "Attribute": {
        "tensor": (5, "Tensor"),
        "graph": (6, "Graph"),
        "tensors": (10, "Tensor"),
        "graphs": (11, "Graph"),
        "sparse": (22, "Sparse"),
        "sparses": (23, "Sparse"),
    },
    "Sparse": {"values": (1, "Tensor"), "indices": (2, "Tensor")},
    "Tensor": {"external": (13, "Entry")},
    "Entry": {},
}
"""The messages of onnx.proto that lead to a name, each with its fields that do, by number."""


def check_references(path: Path, files: Collection[str]) -> None:
    """Refuses a graph that takes weights from a file which was not checked.

    Raises:
        ArtifactError: It does, or is no graph.
    """
    try:
        model = _MODEL.FromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise ArtifactError(f"{path}: cannot be read as a graph: {error}") from None
    for name in _locations(model):
        if name not in files:
            raise ArtifactError(
                f"{path}: takes weights from {name!r}, which its manifest does not name; export"
                " the model again"
            )


def _locations(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.name == "value" and message.key == "location":  # type: ignore[attr-defined]
            yield value
        elif field.message_type is not None:
            for part in value:
                yield from _locations(part)


def _declare() -> Any:
    file = FileDescriptorProto(name="onnx.proto", package="onnx", syntax="proto3")
    for name, fields in _HOLDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            # Whether there is one or many is the same on the wire.
            message.field.add(
                name=field, number=number, label="LABEL_REPEATED", type_name=f".onnx.{kind}"
            )
    text_format.Parse(_ENTRY, file.message_type[-1])
    # A pool of its own: the process may have the real one too.
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx.Model"))


_ENTRY = """
field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
"""
_MODEL = _declare()
