"""Builds requests and reads responses of the Open Inference Protocol, as its clients do."""

import struct
from collections.abc import Sequence
from typing import Any

from seqserve.open_inference import open_inference_pb2

Request = open_inference_pb2.ModelInferRequest


def raw_of(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def asking(
    *texts: str | bytes,
    shape: Sequence[int] | None = None,
    raw: bool = False,
    outputs: Sequence[str] = (),
    model: str = "echo",
    version: str = "",
    id: str = "",
    **parameters: Any,
) -> Request:
    """Builds a request; keyword arguments become parameters of their type."""
    request = Request(model_name=model, model_version=version, id=id)
    elements = [text.encode() if isinstance(text, str) else text for text in texts]
    tensor = request.inputs.add(name="text", datatype="BYTES", shape=shape or [len(texts)])
    if raw:
        request.raw_input_contents.append(raw_of(*elements))
    else:
        tensor.contents.bytes_contents.extend(elements)
    for name in outputs:
        request.outputs.add(name=name)
    for name, value in parameters.items():
        set_parameter(request.parameters[name], value)
    return request


def set_parameter(parameter: Any, value: bool | int | float | str) -> None:
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    setattr(parameter, kinds[type(value)], value)


def tensors(response: Any) -> dict[str, list[Any]]:
    """Reads the outputs of a response in either encoding, in rows of its shape."""
    read: dict[str, list[Any]] = {}
    for index, output in enumerate(response.outputs):
        if response.raw_output_contents:
            flat = _unpacked(output.datatype, response.raw_output_contents[index])
        elif output.datatype == "BYTES":
            flat = [element.decode() for element in output.contents.bytes_contents]
        else:
            flat = list(output.contents.fp32_contents)
        count, *width = output.shape
        assert len(flat) == count * (width or [1])[0]
        size = width[0] if width else 1
        rows = [flat[begin : begin + size] for begin in range(0, len(flat), size)]
        read[output.name] = rows if width else flat
    return read


def _unpacked(datatype: str, data: bytes) -> list[Any]:
    if datatype == "FP32":
        return [value for (value,) in struct.iter_unpack("<f", data)]
    found = []
    while data:
        (length,) = struct.unpack_from("<I", data)
        found.append(data[4 : 4 + length].decode())
        data = data[4 + length :]
    return found
