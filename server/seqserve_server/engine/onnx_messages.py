"""The parts of onnx.proto that the engine reads or changes in a graph; the rest stays as it is.

Source: onnx/onnx.proto of https://github.com/onnx/onnx.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

_FIELDS = {
    "Model": {"graph": (7, "Graph", "")},
    "Graph": {
        "nodes": (1, "Node", "many"),
        "inputs": (11, "Value", "many"),
        "outputs": (12, "Value", "many"),
        "known_shapes": (13, "Value", "many"),
    },
    "Node": {
        "inputs": (1, "string", "many"),
        "outputs": (2, "string", "many"),
        "name": (3, "string", ""),
        "kind": (4, "string", ""),
        "attributes": (5, "Attribute", "many"),
    },
    "Attribute": {
        "name": (1, "string", ""),
        "integer": (3, "int64", ""),
        "graph": (6, "Graph", ""),
        "integers": (8, "int64", "many"),
        "type": (20, "int32", ""),
    },
    "Value": {"name": (1, "string", ""), "type": (2, "Type", "")},
    "Type": {"tensor": (1, "Tensor", "")},
    "Tensor": {"shape": (2, "Shape", "")},
    "Shape": {"dims": (1, "Dim", "many")},
    "Dim": {"size": (1, "int64", ""), "name": (2, "string", "")},
}
"""Messages and fields of onnx.proto, each field with its number and type; names are ours."""


def _declare() -> list[Any]:
    # With presence, so that a zero that was written stays.
    file = FileDescriptorProto(name="onnx.proto", package="onnx", syntax="proto2")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, many) in fields.items():
            declared = message.field.add(
                name=field, number=number, label="LABEL_REPEATED" if many else "LABEL_OPTIONAL"
            )
            if kind in _FIELDS:
                declared.type_name = f".onnx.{kind}"
            else:
                declared.type = getattr(declared, f"TYPE_{kind.upper()}")
    # A pool of its own: the process may have the real one too.
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = pool.FindMessageTypeByName
    return [message_factory.GetMessageClass(find(f"onnx.{name}")) for name in _MESSAGES]


_MESSAGES = ("Model", "Node", "Value", "Dim")
MODEL, NODE, VALUE, DIM = _declare()
