"""``inference.GRPCInferenceService``, the Open Inference Protocol: converts and delegates.

Each text becomes a request of ``seqserve.v1``, so both give the same answers and refuse the same.
Of Triton's extensions there is what its clients and perf_analyzer use.
Source: Open Inference Protocol,
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md;
Triton's extensions, https://github.com/triton-inference-server/server/tree/main/docs/protocol.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

from seqserve import __version__
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import (
    Draining,
    InvalidRequest,
    ModelNotFound,
    ServiceError,
)
from seqserve_server.front.models.repository import Entry, ServedModel
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.rpc.batch import answer_all
from seqserve_server.front.rpc.calls.server_call import ServerCall, current
from seqserve_server.front.rpc.calls.wire import Context, Unreadable
from seqserve_server.front.rpc.generation import GenerationServicer
from seqserve_server.front.rpc.open_inference.inference_request import (
    IN_PIECES,
    InferenceRequest,
    renamed,
)
from seqserve_server.front.rpc.open_inference.pb import open_inference_pb2, open_inference_pb2_grpc
from seqserve_server.front.rpc.open_inference.signature import config_of, metadata_of
from seqserve_server.front.rpc.open_inference.tensors import MOST_NAME

Request = open_inference_pb2.ModelInferRequest
Response = open_inference_pb2.ModelInferResponse
Requests: TypeAlias = AsyncIterator[Request | Unreadable]

# As the folders of versions are named.
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
# Triton's names of what is here beside the protocol itself.
_EXTENSIONS = ("model_configuration", "model_repository", "parameters")


class InferenceServicer(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Tensors of texts in, tensors of texts out."""

    def __init__(
        self, rollout: Rollout, generation: GenerationServicer, draining: asyncio.Event
    ) -> None:
        """Takes the models, who answers for them, and what happens when no more is to be read."""
        self._rollout = rollout
        self._repository = rollout.repository
        self._generation = generation
        self._draining = draining

    async def ServerLive(
        self, request: open_inference_pb2.ServerLiveRequest, context: Context
    ) -> open_inference_pb2.ServerLiveResponse:
        """Says that it lives."""
        return open_inference_pb2.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: open_inference_pb2.ServerReadyRequest, context: Context
    ) -> open_inference_pb2.ServerReadyResponse:
        """Says whether calls are taken, and an engine is there for them."""
        is_ready = any(self._takes_calls(entry) for entry in self._repository.entries)
        return open_inference_pb2.ServerReadyResponse(ready=is_ready)

    async def ModelReady(
        self, request: open_inference_pb2.ModelReadyRequest, context: Context
    ) -> open_inference_pb2.ModelReadyResponse:
        """Says whether a model can be called; one that is not there cannot."""
        version = _version("version", request.version)
        try:
            is_ready = self._takes_calls(self._repository.find(request.name, version))
        except ModelNotFound:
            is_ready = False
        return open_inference_pb2.ModelReadyResponse(ready=is_ready)

    async def ServerMetadata(
        self, request: open_inference_pb2.ServerMetadataRequest, context: Context
    ) -> open_inference_pb2.ServerMetadataResponse:
        """Says what this is."""
        return open_inference_pb2.ServerMetadataResponse(
            name="seqserve", version=__version__, extensions=_EXTENSIONS
        )

    async def ModelMetadata(
        self, request: open_inference_pb2.ModelMetadataRequest, context: Context
    ) -> open_inference_pb2.ModelMetadataResponse:
        """Describes the tensors of a model."""
        name = self._model("version", request.name, request.version).manifest.name
        loaded = [model.manifest for model in self._repository.models()]
        return metadata_of(name, [manifest.version for manifest in loaded if manifest.name == name])

    async def ModelConfig(
        self, request: open_inference_pb2.ModelConfigRequest, context: Context
    ) -> open_inference_pb2.ModelConfigResponse:
        """Describes a model as Triton would."""
        model = self._model("version", request.name, request.version)
        return open_inference_pb2.ModelConfigResponse(config=config_of(model.manifest.name))

    async def ModelInfer(self, request: Request, context: Context) -> Response:
        """Answers when every text has its hypotheses; one that fails ends the call."""
        record = current.get()
        asked = self._read(request)
        if asked.in_pieces:
            raise InvalidRequest(f"parameters.{IN_PIECES}", "is set; call ModelStreamInfer")
        return await self._whole(asked, context, record, record.began_s)

    async def ModelStreamInfer(
        self, requests: Requests, context: Context
    ) -> AsyncGenerator[open_inference_pb2.ModelStreamInferResponse, None]:
        """Answers one request after the other; one that fails has its message for an answer."""
        record = current.get()
        async with aclosing(_until(self._draining, requests)) as readable:
            async for request in readable:
                async with aclosing(self._streamed(request, context, record)) as responses:
                    async for response in responses:
                        yield response

    async def RepositoryIndex(
        self, request: open_inference_pb2.RepositoryIndexRequest, context: Context
    ) -> open_inference_pb2.RepositoryIndexResponse:
        """Lists every version, or those that can be called."""
        _check_repository(request.repository_name)
        response = open_inference_pb2.RepositoryIndexResponse()
        for entry in self._repository.entries:
            is_ready = self._takes_calls(entry)
            if is_ready or not request.ready:
                response.models.add(
                    name=entry.name,
                    version=str(entry.version),
                    state="READY" if is_ready else "UNAVAILABLE",
                    reason=entry.reason or ("" if is_ready else "it takes no calls for now"),
                )
        return response

    async def RepositoryModelLoad(
        self, request: open_inference_pb2.RepositoryModelLoadRequest, context: Context
    ) -> open_inference_pb2.RepositoryModelLoadResponse:
        """Loads the highest version; answers when it takes calls."""
        _check_repository(request.repository_name)
        _check_no_parameters(request.parameters)
        await self._rollout.load(request.model_name, 0)
        return open_inference_pb2.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, request: open_inference_pb2.RepositoryModelUnloadRequest, context: Context
    ) -> open_inference_pb2.RepositoryModelUnloadResponse:
        """Unloads every version; answers when their processes have ended."""
        _check_repository(request.repository_name)
        # One that is not there is not found.
        name = self._repository.find(request.model_name, 0).name
        # From the lowest on, so that none takes the place of one above it; and all at once, so that
        # no call is given one that is to go too.
        unloading = [
            self._rollout.unload(name, entry.version) for entry in self._repository.versions(name)
        ]
        await asyncio.gather(*unloading)
        return open_inference_pb2.RepositoryModelUnloadResponse()

    def _takes_calls(self, entry: Entry) -> bool:
        return entry.is_up and not self._draining.is_set()

    def _model(self, field: str, name: str, version: str) -> ServedModel:
        """Finds the model that is meant; the field is the one of its version."""
        return current.get().resolve(self._repository, name, _version(field, version))

    def _read(self, request: Request) -> InferenceRequest:
        model = self._model("model_version", request.model_name, request.model_version)
        return InferenceRequest.read(request, model)

    async def _whole(
        self, asked: InferenceRequest, context: Context, record: ServerCall, began_s: float
    ) -> Response:
        questions = asked.questions()
        # One alone is refused at once, for its caller to come back.
        generate = (
            self._generation.Generate if len(questions) == 1 else self._generation.generate_in_time
        )

        async def answer(
            numbered: tuple[int, generation_pb2.GenerateRequest],
        ) -> generation_pb2.GenerateResponse:
            number, question = numbered
            current.set(record.part(began_s))
            try:
                return await generate(question, context)
            except InvalidRequest as error:
                raise renamed(error, number) from None

        slots = asked.model.engine.slots
        answers = await answer_all(enumerate(questions), answer, slots)
        for one in answers:
            record.answered(one)
        return asked.response([one.hypotheses for one in answers])

    async def _streamed(
        self, request: Request, context: Context, record: ServerCall
    ) -> AsyncGenerator[open_inference_pb2.ModelStreamInferResponse, None]:
        """Answers one request of many, the record being that of their call."""
        began_s = time.monotonic()
        part = record.request(began_s)
        # What is counted is the call's.
        part.facts = record.facts
        current.set(part)
        try:
            asked = self._read(request)
            if not asked.in_pieces:
                yield _of_stream(await self._whole(asked, context, part, began_s), is_last=True)
                return
            async with aclosing(self._pieces(asked, context, part, began_s)) as responses:
                async for response in responses:
                    yield response
        except ServiceError as error:
            response = _of_stream(Response(id=request.id), is_last=True)
            response.error_message = part.failed(error).message
            yield response
        finally:
            record.model = part.model or record.model
            part.release()

    async def _pieces(
        self, asked: InferenceRequest, context: Context, record: ServerCall, began_s: float
    ) -> AsyncGenerator[open_inference_pb2.ModelStreamInferResponse, None]:
        [question] = asked.questions()
        current.set(record.part(began_s))
        try:
            async with aclosing(self._generation.GenerateStream(question, context)) as messages:
                async for message in messages:
                    if message.HasField("piece"):
                        yield _of_stream(asked.piece(message.piece.text), is_last=False)
                    else:
                        record.answered(message.result)
                        end = asked.end(message.result.hypotheses[0])
                        yield _of_stream(end, is_last=True)
        except InvalidRequest as error:
            raise renamed(error, 0) from None


def _version(field: str, text: str) -> int:
    if not text:
        return 0
    if not _VERSION.fullmatch(text):
        raise InvalidRequest(
            field, f"is {text!r:.{MOST_NAME}}; versions are whole numbers, empty for the highest"
        )
    return int(text)


def _check_repository(name: str) -> None:
    if name:
        raise InvalidRequest("repository_name", "must be empty; there is one repository")


def _check_no_parameters(parameters: Mapping[str, Any]) -> None:
    # Triton's own would bring a configuration, or files, from the network.
    if parameters:
        raise InvalidRequest("parameters", "must be empty: a version is what its folder holds")


def _of_stream(response: Response, *, is_last: bool) -> open_inference_pb2.ModelStreamInferResponse:
    # So that a caller need not know how many answers a request has.
    response.parameters["triton_final_response"].bool_param = is_last
    return open_inference_pb2.ModelStreamInferResponse(infer_response=response)


async def _until(draining: asyncio.Event, requests: Requests) -> AsyncGenerator[Request, None]:
    """Gives requests as they come; none is read before the one before it has its answer.

    Raises:
        Draining: The server shuts down.
        InvalidRequest: One cannot be read.
    """
    waited: list[asyncio.Future[Any]] = [asyncio.create_task(draining.wait())]
    try:
        while True:
            reading = asyncio.ensure_future(anext(requests, None))
            waited[1:] = [reading]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise Draining("the server is shutting down; send the rest to another one")
            request = reading.result()
            if request is None:
                return
            if isinstance(request, Unreadable):
                raise request
            yield request
    finally:
        for task in waited:
            task.cancel()
