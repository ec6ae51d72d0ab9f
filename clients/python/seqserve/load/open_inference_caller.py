"""A caller of the Open Inference Protocol over gRPC, as Triton, KServe and our server speak it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from seqserve.errors import OptionError
from seqserve.load.answer import Reply, gaps_of
from seqserve.load.channel_caller import ChannelCaller
from seqserve.open_inference import open_inference_pb2, open_inference_pb2_grpc
from seqserve.tls import TLS

Request = open_inference_pb2.ModelInferRequest

_TEXTS = "BYTES"
_KINDS = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


class OpenInferenceCaller(ChannelCaller):
    """Calls ModelInfer, or ModelStreamInfer; asks the server for the tensors of the model first."""

    def __init__(
        self,
        target: str,
        model: str,
        *,
        version: int | None = None,
        parameters: Mapping[str, Any],
        input_name: str | None = None,
        streamed: bool = False,
        tls: TLS | None = None,
        token: str | None = None,
    ) -> None:
        """Takes what to call, as :class:`~seqserve.Client` describes it.

        Args:
            target: The server, or several, which get calls in turn.
            model: Name of the model.
            version: Its version; the server chooses if None.
            parameters: Of each request, by name.
            input_name: Tensor for the text; if None the only one that takes texts.
            streamed: Whether to call ModelStreamInfer, once for each request, with the parameter
                ``stream``.
            tls: Encryption.
            token: Of a server that requires one.
        """
        super().__init__(target, tls, token)
        self._request = Request(model_name=model, model_version=str(version) if version else "")
        for name, value in parameters.items():
            setattr(self._request.parameters[name], _KINDS[type(value)], value)
        if streamed:
            self._request.parameters["stream"].bool_param = True
        self._input_name, self._streamed = input_name, streamed

    async def _begin(self, channel: Any) -> None:
        stub: Any = open_inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._infer, self._infer_stream = stub.ModelInfer, stub.ModelStreamInfer
        metadata_request = open_inference_pb2.ModelMetadataRequest(
            name=self._request.model_name, version=self._request.model_version
        )
        model = await stub.ModelMetadata(metadata_request, metadata=self._metadata)
        text_input = _input_of(model.inputs, self._input_name)
        # One text, however many sizes the tensor has.
        self._request.inputs.add(
            name=text_input.name, datatype=_TEXTS, shape=[1] * len(text_input.shape)
        )
        # Other outputs, such as scores, may take work that nobody asked for.
        for output in [each for each in model.outputs if each.datatype == _TEXTS][:1]:
            self._request.outputs.add(name=output.name)

    async def _answered(self, source: str, call: dict[str, Any]) -> Reply:
        request = Request()
        request.CopyFrom(self._request)
        request.inputs[0].contents.bytes_contents.append(source.encode())
        if self._streamed:
            return await _stream(self._infer_stream(iter([request]), **call))
        await self._infer(request, **call)
        return Reply(first_at_s=time.perf_counter())


async def _stream(messages: Any) -> Reply:
    at_s: list[float] = []
    async for message in messages:
        if message.error_message:
            # The protocol has no status here.
            return Reply(error="UNKNOWN", details=message.error_message)
        if _has_text(message.infer_response):
            at_s.append(time.perf_counter())
    return Reply(first_at_s=at_s[0] if at_s else time.perf_counter(), gaps_s=gaps_of(at_s))


def _has_text(response: Any) -> bool:
    """Returns whether a response holds a piece; the last one of a stream may have none."""
    # An element follows its length, which is zero where it is empty.
    typed = (text for output in response.outputs for text in output.contents.bytes_contents)
    return any(map(any, (*response.raw_output_contents, *typed)))


def _input_of(tensors: Sequence[Any], name: str | None) -> Any:
    """Returns the tensor that takes the text.

    Raises:
        OptionError: It is not clear which, or there is none of that name.
    """
    texts = [tensor for tensor in tensors if tensor.datatype == _TEXTS]
    named = [tensor for tensor in texts if name in (None, tensor.name)]
    if len(named) == 1:
        return named[0]
    inputs = ", ".join(tensor.name for tensor in texts) or "none"
    reason = f"has no input {name!r} of texts" if name else "does not have one input of texts"
    raise OptionError(f"--input-name: the model {reason}; its inputs of texts: {inputs}")


def parameters_of(options: Message) -> dict[str, Any]:
    """Writes decoding options as parameters, which have no lists: those are JSON."""
    return dict(_parameters(options))


def _parameters(options: Message) -> Iterator[tuple[str, Any]]:
    for field, value in options.ListFields():
        if type(value) in _KINDS:
            yield field.name, value
        else:
            facts = json_format.MessageToDict(options, preserving_proto_field_name=True)
            yield field.name, json.dumps(facts[field.name], ensure_ascii=False)
