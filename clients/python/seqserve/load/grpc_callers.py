"""Callers over gRPC: no retries, answers at once or streamed.

One calls ``seqserve.v1``, the other the Open Inference Protocol, as Triton, KServe and our server
speak it.
"""

import asyncio
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import Message

from seqserve._transport.channels import AsyncChannels
from seqserve._transport.connection import Connection
from seqserve._transport.status import error_of_call
from seqserve.arguments import MAX_MESSAGE_BYTES
from seqserve.errors import OptionError, Unreachable
from seqserve.load import Reply
from seqserve.open_inference import open_inference_pb2, open_inference_pb2_grpc
from seqserve.v1 import generation_pb2, generation_pb2_grpc

_CONNECT_S = 10.0


class ChannelCaller(ABC):
    """Calls one server, or several in turn; every call counts, so none is repeated.

    Settings are ``tls``, ``token`` and ``connections``, as :class:`.Connection` takes them.
    """

    stub: Any
    """Returns what makes the calls of a channel."""

    def __init__(self, target: str, streamed: bool, **settings: Any) -> None:
        self._target, self._streamed, self._settings = target, streamed, settings

    async def __aenter__(self) -> Self:
        connection = Connection(self._target, MAX_MESSAGE_BYTES, **self._settings)
        self._metadata = connection.metadata()
        self._channels = AsyncChannels(connection, self.stub)
        try:
            number = self._settings.get("connections") or 1
            await asyncio.wait_for(self._channels.connect(number), _CONNECT_S)
            place = self._channels.place()
            await self._begin(place.stubs)
            place.leave()
        except TimeoutError:
            await self.__aexit__()
            reason = f"no connection to {self._target} within {_CONNECT_S:g} s"
            raise Unreachable("UNAVAILABLE", reason) from None
        except grpc.aio.AioRpcError as failed:
            await self.__aexit__()
            raise error_of_call(failed) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channels.close()

    async def send(self, source: str, timeout_s: float) -> Reply:
        """Sends a text once and waits for the end of its answer, which may be an error."""
        place = self._channels.place()
        try:
            return await self._answered(source, place.stubs, self._call(timeout_s))
        except grpc.aio.AioRpcError as failed:
            error = place.failed(error_of_call(failed))
            return Reply(error=failed.code().name, details=error.details)
        finally:
            place.leave()

    def _call(self, timeout_s: float) -> dict[str, Any]:
        limit = {} if math.isinf(timeout_s) else {"timeout": timeout_s}
        return {"metadata": self._metadata, **limit}

    async def _begin(self, stub: Any) -> None:  # noqa: B027
        """Asks the server what the calls need, which may be nothing."""

    @abstractmethod
    async def _answered(self, source: str, stub: Any, call: dict[str, Any]) -> Reply:
        """Sends a text and waits; an error of gRPC is raised."""


class GrpcCaller(ChannelCaller):
    """Calls Generate, or GenerateStream."""

    stub = generation_pb2_grpc.GenerationServiceStub

    def __init__(
        self,
        target: str,
        request: generation_pb2.GenerateRequest,
        *,
        streamed: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(target, streamed, **settings)
        self._request = request

    async def _answered(self, source: str, stub: Any, call: dict[str, Any]) -> Reply:
        request = generation_pb2.GenerateRequest()
        request.CopyFrom(self._request)
        request.source = source
        if self._streamed:
            return await self._stream(stub.GenerateStream(request, **call))
        response = await stub.Generate(request, **call)
        return Reply.at([], response.generated_tokens, response.source_tokens)

    async def _stream(self, messages: Any) -> Reply:
        at_s: list[float] = []
        result = None
        async for message in messages:
            if message.HasField("result"):
                result = message.result
            else:
                at_s.append(time.perf_counter())
        if result is None:
            return Reply(error="INTERNAL", details="the stream ended without a result")
        return Reply.at(at_s, result.generated_tokens, result.source_tokens)


Request = open_inference_pb2.ModelInferRequest

_TEXTS = "BYTES"
_KINDS = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}


class OpenInferenceCaller(ChannelCaller):
    """Calls ModelInfer, or ModelStreamInfer; asks the server for the tensors of the model first."""

    stub = open_inference_pb2_grpc.GRPCInferenceServiceStub

    def __init__(
        self,
        target: str,
        model: str,
        *,
        version: int | None = None,
        parameters: Mapping[str, Any],
        input_name: str | None = None,
        streamed: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(target, streamed, **settings)
        self._request = Request(model_name=model, model_version=str(version) if version else "")
        for name, value in parameters.items():
            setattr(self._request.parameters[name], _KINDS[type(value)], value)
        if streamed:
            self._request.parameters["stream"].bool_param = True
        self._input_name = input_name

    async def _begin(self, stub: Any) -> None:
        metadata_request = open_inference_pb2.ModelMetadataRequest(
            name=self._request.model_name, version=self._request.model_version
        )
        model = await stub.ModelMetadata(metadata_request, metadata=self._metadata)
        text_input = _input_of(model.inputs, self._input_name)
        # One text, however many sizes the tensor has.
        self._request.inputs.add(
            name=text_input.name, datatype=_TEXTS, shape=[1] * len(text_input.shape)
        )
        # Other outputs, such as scores, may cost extra work.
        for output in [each for each in model.outputs if each.datatype == _TEXTS][:1]:
            self._request.outputs.add(name=output.name)

    async def _answered(self, source: str, stub: Any, call: dict[str, Any]) -> Reply:
        request = Request()
        request.CopyFrom(self._request)
        request.inputs[0].contents.bytes_contents.append(source.encode())
        if self._streamed:
            return await _pieces_of(stub.ModelStreamInfer(iter([request]), **call))
        await stub.ModelInfer(request, **call)
        return Reply.at([])


async def _pieces_of(messages: Any) -> Reply:
    at_s: list[float] = []
    async for message in messages:
        if message.error_message:
            # The protocol has no status here.
            return Reply(error="UNKNOWN", details=message.error_message)
        if _has_text(message.infer_response):
            at_s.append(time.perf_counter())
    return Reply.at(at_s)


def _has_text(response: Any) -> bool:
    # An element follows its length, which is zero where it is empty.
    typed = (text for output in response.outputs for text in output.contents.bytes_contents)
    return any(map(any, (*response.raw_output_contents, *typed)))


def _input_of(tensors: Sequence[Any], name: str | None) -> Any:
    texts = [tensor for tensor in tensors if tensor.datatype == _TEXTS]
    named = [tensor for tensor in texts if name in (None, tensor.name)]
    if len(named) == 1:
        return named[0]
    inputs = ", ".join(tensor.name for tensor in texts) or "none"
    reason = f"has no input {name!r} of texts" if name else "does not have one input of texts"
    raise OptionError(f"--input-name: the model {reason}; its inputs of texts: {inputs}")


def parameters_of(options: Message) -> dict[str, Any]:
    """Writes decoding options as parameters, which have no lists: those are JSON."""
    facts = json_format.MessageToDict(options, preserving_proto_field_name=True)
    return {
        field.name: value
        if type(value) in _KINDS
        else json.dumps(facts[field.name], ensure_ascii=False)
        for field, value in options.ListFields()
    }
