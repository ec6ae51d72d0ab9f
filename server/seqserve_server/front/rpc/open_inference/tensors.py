"""Tensors of the Open Inference Protocol, in both of its encodings: typed lists, or raw bytes.

Source: Open Inference Protocol, "Tensor Data",
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md.
The length before each element of BYTES is what Triton and its clients write,
https://github.com/triton-inference-server/client (``serialize_byte_tensor``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.rpc.open_inference.pb import open_inference_pb2
from seqserve_server.front.rpc.options.validation import MAX_SOURCES

Request = open_inference_pb2.ModelInferRequest
Response = open_inference_pb2.ModelInferResponse

TEXT = "text"
"""The one input of every model."""
BYTES, FP32 = "BYTES", "FP32"
MOST_NAME = 64
"""Characters of a name of the caller's that an error repeats."""

_LENGTH = struct.Struct("<I")
_RAW = "raw_input_contents"
_MOST_SIZES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What the input of a request holds."""

    texts: list[str]
    is_flat: bool
    """Whether its shape is [N] and not [N, 1]."""
    is_raw: bool
    """Whether it came as raw bytes; the answer goes as it came."""


def texts_of(request: Request) -> Texts:
    """Reads the input of a request.

    Raises:
        InvalidRequest: It is not one tensor of texts, or its elements are not what its shape says.
    """
    tensor = _only_input(request)
    count = _count(tensor)
    is_raw = bool(request.raw_input_contents)
    elements = _raw_elements(request, count) if is_raw else _typed_elements(tensor, count)
    texts = [_text(element, number) for number, element in enumerate(elements)]
    return Texts(texts=texts, is_flat=len(tensor.shape) == 1, is_raw=is_raw)


def add_output(
    response: Response,
    name: str,
    datatype: str,
    shape: Sequence[int],
    values: Sequence[Any],
    *,
    is_raw: bool,
) -> None:
    """Adds a tensor to an answer.

    Args:
        response: The answer.
        name: Of the tensor.
        datatype: Of the tensor.
        shape: Of the tensor.
        values: Its elements, the last size changing fastest.
        is_raw: Whether they are wanted as raw bytes.
    """
    output = response.outputs.add(name=name, datatype=datatype, shape=shape)
    if is_raw:
        response.raw_output_contents.append(_RAW_FORMS[datatype](values))
    else:
        getattr(output.contents, _TYPED_LISTS[datatype]).extend(values)


def packed(elements: Sequence[bytes]) -> bytes:
    """Writes elements of BYTES, each after its length."""
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))


def unpacked(data: bytes, count: int) -> list[bytes]:
    """Reads as many elements of BYTES.

    Raises:
        ValueError: They are not so many; the message says what is wrong.
    """
    elements = []
    place = 0
    for number in range(count):
        begin = place + _LENGTH.size
        if begin > len(data):
            raise ValueError(f"ends before element {number} of {count}")
        (length,) = _LENGTH.unpack_from(data, place)
        place = begin + length
        if place > len(data):
            raise ValueError(f"ends within element {number}, which has {length} bytes")
        elements.append(data[begin:place])
    if place < len(data):
        raise ValueError(f"has {len(data) - place} bytes after element {count - 1}, the last one")
    return elements


def _packed_floats(numbers: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


_RAW_FORMS: dict[str, Callable[[Sequence[Any]], bytes]] = {BYTES: packed, FP32: _packed_floats}
_TYPED_LISTS = {BYTES: "bytes_contents", FP32: "fp32_contents"}


def refuse_parameters(field: str, names: Iterable[str]) -> None:
    """Refuses what is said of a tensor beside its elements, such as that they are elsewhere.

    Raises:
        InvalidRequest: Something is.
    """
    for name in names:
        raise InvalidRequest(
            f"{field}.parameters", f"hold {name!r:.{MOST_NAME}}; none are taken there"
        )


def _only_input(request: Request) -> Request.InferInputTensor:
    names = [tensor.name for tensor in request.inputs]
    if names != [TEXT]:
        others = [name for name in names if name != TEXT]
        found = f"has {others[0]!r:.{MOST_NAME}}" if others else f"has {len(names)} of them"
        raise InvalidRequest("inputs", f"{found}; a call has one, {TEXT!r}")
    tensor = request.inputs[0]
    if tensor.datatype != BYTES:
        raise InvalidRequest(
            f"inputs.{TEXT}.datatype", f"is {tensor.datatype!r:.{MOST_NAME}}; it must be {BYTES!r}"
        )
    refuse_parameters(f"inputs.{TEXT}", tensor.parameters)
    return tensor


def _count(tensor: Request.InferInputTensor) -> int:
    shape = tensor.shape
    if len(shape) in (1, 2) and 1 <= shape[0] <= MAX_SOURCES and shape[1:] in ([], [1]):
        return shape[0]
    shown = ", ".join(str(size) for size in shape[:_MOST_SIZES])
    more = ", …" if len(shape) > _MOST_SIZES else ""
    raise InvalidRequest(
        f"inputs.{TEXT}.shape",
        f"is [{shown}{more}]; it must be [N] or [N, 1], with N from 1 to {MAX_SOURCES}",
    )


def _raw_elements(request: Request, count: int) -> list[bytes]:
    if request.inputs[0].HasField("contents"):
        raise InvalidRequest(_RAW, f"are given beside inputs.{TEXT}.contents; give one of them")
    if len(request.raw_input_contents) > 1:
        raise InvalidRequest(_RAW, f"are {len(request.raw_input_contents)}; there is one input")
    try:
        return unpacked(request.raw_input_contents[0], count)
    except ValueError as error:
        raise InvalidRequest(f"{_RAW}[0]", str(error)) from None


def _typed_elements(tensor: Request.InferInputTensor, count: int) -> Sequence[bytes]:
    field = f"inputs.{TEXT}.contents"
    for filled, _ in tensor.contents.ListFields():
        if filled.name != "bytes_contents":
            raise InvalidRequest(field, f"has {filled.name}; {BYTES} go to bytes_contents")
    elements = tensor.contents.bytes_contents
    if len(elements) != count:
        raise InvalidRequest(
            f"{field}.bytes_contents", f"are {len(elements)}; by its shape they are {count}"
        )
    return elements


def _text(element: bytes, number: int) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"inputs.{TEXT}[{number}]", "is not valid UTF-8") from None
