"""The tensors of every model, in both encodings of the protocol: typed lists and raw bytes.

All models have the same: texts go in, and each output tensor has one value per hypothesis.

Source: Open Inference Protocol, "Tensor Data",
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md.
Raw elements of BYTES follow their length, as Triton and its clients write them,
https://github.com/triton-inference-server/client (``serialize_byte_tensor``).
"""

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import MAX_NAME, InvalidRequest
from seqserve_server.contract.limits import MAX_SOURCES

Hypothesis = generation_pb2.Hypothesis
Metadata = open_inference_pb2.ModelMetadataResponse
Config = open_inference_pb2.ModelConfig
Request = open_inference_pb2.ModelInferRequest
Response = open_inference_pb2.ModelInferResponse

TEXT = "text"
"""The one input of every model."""
BYTES, FP32 = "BYTES", "FP32"

_LENGTH = struct.Struct("<I")
_RAW = "raw_input_contents"
_MAX_SIZES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The input of a request."""

    texts: list[str]
    is_flat: bool
    """Whether its shape is ``[N]`` rather than ``[N, 1]``."""
    is_raw: bool
    """Whether it was encoded as raw bytes; the response uses the same encoding."""


def texts_of(request: Request) -> Texts:
    """Reads the input of a request, which must be one tensor of texts that fits its shape."""
    tensor = _only_input(request)
    count = _count(tensor)
    is_raw = bool(request.raw_input_contents)
    elements = _raw_elements(request, count) if is_raw else _typed_elements(tensor, count)
    texts = [_text(element, index) for index, element in enumerate(elements)]
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
    """Adds a tensor to a response; its values are in row-major order."""
    output = response.outputs.add(name=name, datatype=datatype, shape=shape)
    if is_raw:
        response.raw_output_contents.append(_RAW_FORMS[datatype](values))
    else:
        getattr(output.contents, _TYPED_LISTS[datatype]).extend(values)


def packed(elements: Sequence[bytes]) -> bytes:
    """Encodes elements of BYTES, each after its length."""
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))


def unpacked(data: bytes, count: int) -> list[bytes]:
    """Decodes ``count`` elements of BYTES; ValueError says where there are fewer or more."""
    elements = []
    end = 0
    for index in range(count):
        begin = end + _LENGTH.size
        if begin > len(data):
            raise ValueError(f"ends before element {index} of {count}")
        (length,) = _LENGTH.unpack_from(data, end)
        end = begin + length
        if end > len(data):
            raise ValueError(f"ends within element {index}, which has {length} bytes")
        elements.append(data[begin:end])
    if end < len(data):
        raise ValueError(f"has {len(data) - end} bytes after element {count - 1}, the last one")
    return elements


_RAW_FORMS: dict[str, Callable[[Sequence[Any]], bytes]] = {
    BYTES: packed,
    FP32: lambda values: struct.pack(f"<{len(values)}f", *values),
}
_TYPED_LISTS = {BYTES: "bytes_contents", FP32: "fp32_contents"}


def refuse_parameters(field: str, names: Iterable[str]) -> None:
    """Refuses parameters of a tensor, such as one that puts its data in shared memory."""
    # KServe's client says for HTTP how data is sent, over gRPC too.
    for name in set(names) - {"binary_data", "binary_data_size"}:
        raise InvalidRequest(
            f"{field}.parameters", f"{name!r:.{MAX_NAME}} is unknown; tensors have no parameters"
        )


def _only_input(request: Request) -> Request.InferInputTensor:
    names = [tensor.name for tensor in request.inputs]
    if names != [TEXT]:
        others = [name for name in names if name != TEXT]
        fault = f"has {others[0]!r:.{MAX_NAME}}" if others else f"has {len(names)} tensors"
        raise InvalidRequest("inputs", f"{fault}; send one, {TEXT!r}")
    tensor = request.inputs[0]
    if tensor.datatype != BYTES:
        raise InvalidRequest(
            f"inputs.{TEXT}.datatype", f"is {tensor.datatype!r:.{MAX_NAME}}; it must be {BYTES!r}"
        )
    refuse_parameters(f"inputs.{TEXT}", tensor.parameters)
    return tensor


def _count(tensor: Request.InferInputTensor) -> int:
    shape = tensor.shape
    if len(shape) in (1, 2) and 1 <= shape[0] <= MAX_SOURCES and shape[1:] in ([], [1]):
        return shape[0]
    shown = ", ".join(str(size) for size in shape[:_MAX_SIZES])
    more = ", …" if len(shape) > _MAX_SIZES else ""
    raise InvalidRequest(
        f"inputs.{TEXT}.shape",
        f"is [{shown}{more}]; it must be [N] or [N, 1], with N from 1 to {MAX_SOURCES}",
    )


def _raw_elements(request: Request, count: int) -> list[bytes]:
    if request.inputs[0].HasField("contents"):
        raise InvalidRequest(_RAW, f"is set with inputs.{TEXT}.contents too; send one of the two")
    if len(request.raw_input_contents) > 1:
        raise InvalidRequest(_RAW, f"has {len(request.raw_input_contents)} entries; send one")
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
            f"{field}.bytes_contents", f"has {len(elements)} elements; the shape says {count}"
        )
    return elements


def _text(element: bytes, index: int) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"inputs.{TEXT}[{index}]", "is not valid UTF-8") from None


# The protocol's name for models of ONNX.
_PLATFORM = "onnx_onnxv1"
_CONFIG_TYPES = {
    BYTES: open_inference_pb2.DataType.TYPE_STRING,
    FP32: open_inference_pb2.DataType.TYPE_FP32,
}


@dataclass(frozen=True, slots=True)
class Output:
    """An output tensor."""

    name: str
    datatype: str
    value: Callable[[Hypothesis], Any]
    missing: Any
    """For a hypothesis that was wanted and not found."""
    is_score: bool = False

    def elements(self, hypotheses: Sequence[Hypothesis], count: int) -> list[Any]:
        """Returns ``count`` elements for the hypotheses of one text."""
        values = [self.value(hypothesis) for hypothesis in hypotheses]
        return values + [self.missing] * (count - len(values))


def _stop_reason(hypothesis: Hypothesis) -> bytes:
    name = generation_pb2.StopReason.Name(hypothesis.stop_reason)
    return name.removeprefix("STOP_REASON_").encode()


def _score(name: str) -> Output:
    return Output(name, FP32, attrgetter(name), -math.inf, is_score=True)


OUTPUTS = {
    output.name: output
    for output in (
        Output(TEXT, BYTES, lambda hypothesis: hypothesis.text.encode(), b""),
        _score("score"),
        _score("normalized_score"),
        Output("stop_reason", BYTES, _stop_reason, b""),
    )
}


def metadata_of(name: str, versions: Sequence[int]) -> Metadata:
    """Describes a model, with its loaded versions, as the protocol does."""
    return Metadata(
        name=name,
        versions=[str(version) for version in versions],
        platform=_PLATFORM,
        inputs=[Metadata.TensorMetadata(name=TEXT, datatype=BYTES, shape=[-1, 1])],
        outputs=[
            Metadata.TensorMetadata(name=output.name, datatype=output.datatype, shape=[-1, -1])
            for output in OUTPUTS.values()
        ],
    )


def config_of(name: str) -> Config:
    """Describes a model as Triton's configuration does."""
    config = Config(name=name, platform=_PLATFORM, max_batch_size=MAX_SOURCES)
    config.input.add(name=TEXT, data_type=_CONFIG_TYPES[BYTES], dims=[1])
    for output in OUTPUTS.values():
        config.output.add(name=output.name, data_type=_CONFIG_TYPES[output.datatype], dims=[-1])
    return config


def outputs_of(request: Request) -> list[Output]:
    """Lists the outputs that a request wants, in its order; all if it names none."""
    for wanted in request.outputs:
        if wanted.name not in OUTPUTS:
            raise InvalidRequest(
                "outputs",
                f"{wanted.name!r:.{MAX_NAME}} is unknown; choose from {', '.join(OUTPUTS)}",
            )
        refuse_parameters(f"outputs.{wanted.name}", wanted.parameters)
    names = dict.fromkeys(wanted.name for wanted in request.outputs)
    return [OUTPUTS[name] for name in names or OUTPUTS]
