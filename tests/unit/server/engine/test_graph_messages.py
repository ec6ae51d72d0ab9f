from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine import graph_messages
from seqserve_server.engine.graph_messages import check_references

FILES = ["weights.bin"]
PARTS = [
    "initializer",
    "sparse initializer",
    "constant",
    "tensors of a node",
    "sparse tensor of a node",
    "branch",
    "branches",
    "function",
    "default of a function",
    "training",
]


def tensor(location: str) -> TensorProto:
    found = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    found.data_location = TensorProto.EXTERNAL
    for key, value in (("offset", "0"), ("location", location), ("length", "16")):
        found.external_data.add(key=key, value=value)
    return found


def graph_with(*nodes: Any, tensors: tuple[TensorProto, ...] = ()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "g", [], [], list(tensors))


def node_with(**values: Any) -> onnx.NodeProto:
    """Makes a node with an attribute that has these fields."""
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.append(onnx.AttributeProto(name="value", **values))
    return node


def model_with(part: str, location: str) -> onnx.ModelProto:
    """Makes a model of which one part takes its weights from a file."""
    external = tensor(location)
    inner = graph_with(tensors=(external,))
    sparse = onnx.SparseTensorProto(values=external)
    graphs = {
        "initializer": inner,
        "sparse initializer": onnx.GraphProto(sparse_initializer=[sparse]),
        "constant": graph_with(node_with(t=external)),
        "tensors of a node": graph_with(node_with(tensors=[external])),
        "sparse tensor of a node": graph_with(node_with(sparse_tensor=sparse)),
        "branch": graph_with(node_with(g=inner)),
        "branches": graph_with(node_with(graphs=[graph_with(node_with(g=inner))])),
    }
    model = onnx.ModelProto(ir_version=10, graph=graphs.get(part, graph_with()))
    constant = node_with(t=external)
    if part == "function":
        model.functions.append(onnx.FunctionProto(name="f", node=[constant]))
    elif part == "default of a function":
        model.functions.append(onnx.FunctionProto(attribute_proto=constant.attribute))
    elif part == "training":
        model.training_info.append(onnx.TrainingInfoProto(algorithm=inner))
    return model


def write(folder: Path, part: str, location: str) -> Path:
    path = folder / "decoder.onnx"
    path.write_bytes(model_with(part, location).SerializeToString())
    return path


@pytest.mark.parametrize("part", PARTS)
def test_weights_from_elsewhere_are_refused(tmp_path: Path, part: str) -> None:
    check_references(write(tmp_path, part, "weights.bin"), FILES)
    with pytest.raises(ArtifactError, match=r"decoder\.onnx: takes weights from 'other\.bin'"):
        check_references(write(tmp_path, part, "other.bin"), FILES)


@pytest.mark.parametrize(
    "location",
    [
        "../weights.bin",
        "/etc/passwd",
        "./weights.bin",
        "x/../weights.bin",
        "weights.bin/",
        # ONNX Runtime reads this one as an address in its own memory.
        "*/_ORT_MEM_ADDR_/*",
        # Not in the manifest; it may be a link.
        "link.bin",
    ],
)
def test_only_the_exact_names_of_the_manifest_are_taken(tmp_path: Path, location: str) -> None:
    with pytest.raises(ArtifactError, match="which its manifest does not name"):
        check_references(write(tmp_path, "initializer", location), FILES)


@pytest.mark.parametrize("content", [b"garbage", b"\x3a\xff", None])
def test_a_file_that_is_no_graph_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "decoder.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"decoder\.onnx: cannot be read as a graph"):
        check_references(path, FILES)


def test_a_file_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    data = model_with("initializer", "other.bin").SerializeToString()
    path = tmp_path / "decoder.onnx"
    path.write_bytes(data.replace(b"other.bin", b"\xff" * 9))
    with pytest.raises(ArtifactError, match="which its manifest does not name"):
        check_references(path, FILES)


def test_every_field_of_onnx_that_leads_to_a_file_name_is_followed() -> None:
    """The installed onnx.proto is the reference, so the test fails when a release adds a field."""
    kinds = {
        "Model": onnx.ModelProto,
        "Graph": onnx.GraphProto,
        "Training": onnx.TrainingInfoProto,
        "Function": onnx.FunctionProto,
        "Node": onnx.NodeProto,
        "Attribute": onnx.AttributeProto,
        "Sparse": onnx.SparseTensorProto,
        "Tensor": onnx.TensorProto,
        "Entry": onnx.StringStringEntryProto,
    }
    names = {kind.DESCRIPTOR.full_name: name for name, kind in kinds.items()}
    for name, kind in kinds.items():
        fields = {
            field.number: names[field.message_type.full_name]
            for field in kind.DESCRIPTOR.fields
            if field.message_type is not None and field.message_type.full_name in names
            # Metadata and names of values, not of files.
            if field.name not in ("metadata_props", "initialization_binding", "update_binding")
        }
        declared = graph_messages.MODEL.DESCRIPTOR.file.message_types_by_name[name]
        followed = {
            field.number: field.message_type.name
            for field in declared.fields
            if field.message_type is not None and field.message_type.name in kinds
        }
        assert fields == followed
