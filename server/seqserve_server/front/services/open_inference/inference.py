"""``inference.GRPCInferenceService``, the Open Inference Protocol: inference.

Each text becomes a request of ``seqserve.v1``, so both protocols give the same answers and the same
errors. Of Triton's extensions, those are here that its clients and perf_analyzer use.
Sources: Open Inference Protocol,
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md;
Triton's extensions, https://github.com/triton-inference-server/server/tree/main/docs/protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, TypeAlias

from seqserve.open_inference import open_inference_pb2
from seqserve_server.contract.errors import Draining, InvalidRequest, ServiceError
from seqserve_server.front.answer.source_answer import SourceAnswer
from seqserve_server.front.answer.window import Window
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.call.wire import Unreadable
from seqserve_server.front.glossaries.folder import Glossaries
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.request.prepared import Prepared, prepare
from seqserve_server.front.request.terms import glossary_of
from seqserve_server.front.services.open_inference.inference_request import (
    STREAM,
    InferenceRequest,
    renamed,
)
from seqserve_server.front.services.open_inference.model_control import (
    ModelControlServicer,
    version_of,
)
from seqserve_server.front.telemetry.metrics import Metrics

Request = open_inference_pb2.ModelInferRequest
Response = open_inference_pb2.ModelInferResponse
StreamResponse = open_inference_pb2.ModelStreamInferResponse
Requests: TypeAlias = AsyncIterator[Request | Unreadable]


class InferenceServicer(ModelControlServicer):
    """Tensors of texts in, tensors of texts out."""

    def __init__(
        self, rollout: Rollout, metrics: Metrics, glossaries: Glossaries, draining: asyncio.Event
    ) -> None:
        """Takes the models, their figures, the glossaries, and the event that the server shuts
        down."""
        super().__init__(rollout, metrics, draining)
        self._glossaries = glossaries

    async def ModelInfer(self, request: Request, call: ServerCall) -> Response:
        """Generates from every text of a request; one text that fails ends the call."""
        inference, prepared = await self._prepared(request, call)
        if inference.is_streamed:
            raise InvalidRequest(
                f"parameters.{STREAM}", "is set; call ModelStreamInfer, or leave it out"
            )
        return await _whole(inference, prepared, call)

    async def ModelStreamInfer(
        self, requests: Requests, call: ServerCall
    ) -> AsyncGenerator[StreamResponse, None]:
        """Answers one request after the other; one that fails is answered with its message."""
        async with aclosing(_until(self._draining, requests)) as readable:
            async for request in readable:
                async with aclosing(self._streamed(request, call)) as responses:
                    async for response in responses:
                        yield response

    async def _prepared(
        self, request: Request, call: ServerCall
    ) -> tuple[InferenceRequest, Prepared]:
        """Reads a request, and waits until there is memory for its answers."""
        version = version_of("model_version", request.model_version)
        model = call.resolve(self._repository, request.model_name, version)
        inference = InferenceRequest.read(request, model)
        generate = inference.generate_request()
        try:
            glossary = glossary_of(generate.options, model.manifest, self._glossaries)
            return inference, await prepare(generate, model, call, glossary=glossary)
        except InvalidRequest as error:
            raise renamed(error, 0) from None

    async def _streamed(
        self, request: Request, call: ServerCall
    ) -> AsyncGenerator[StreamResponse, None]:
        """Answers one request of a stream."""
        request_call = call.begin_request(time.monotonic())
        # Its tokens count as those of the call.
        request_call.facts = call.facts
        try:
            inference, prepared = await self._prepared(request, request_call)
            if not inference.is_streamed:
                yield _message(await _whole(inference, prepared, request_call), is_last=True)
                return
            async with aclosing(_pieces(inference, prepared, request_call)) as responses:
                async for response in responses:
                    yield response
        except ServiceError as error:
            failed = _message(Response(id=request.id), is_last=True)
            failed.error_message = request_call.failed(error).message
            yield failed
        finally:
            call.take_model_of(request_call)
            request_call.release_models()
            request_call.free_memory()


async def _whole(inference: InferenceRequest, prepared: Prepared, call: ServerCall) -> Response:
    """Answers all texts; the first that fails ends the call."""
    window = Window.of(prepared.model)
    answers = []
    for index, source in enumerate(prepared.sources):
        try:
            answers.append(SourceAnswer(prepared, source, call, window))
        except InvalidRequest as error:
            raise renamed(error, index) from None
    # Parts have a window of their own: an answer keeps its place while its parts wait for theirs.
    in_order = Window.of(prepared.model).in_order(answers, SourceAnswer.whole)
    async with aclosing(in_order):
        responses = [response async for response in in_order]
    for response in responses:
        call.count_answer(response)
    return inference.response([response.hypotheses for response in responses])


async def _pieces(
    inference: InferenceRequest, prepared: Prepared, call: ServerCall
) -> AsyncGenerator[StreamResponse, None]:
    """Answers a lone text as it is decoded."""
    window = Window.of(prepared.model)
    answer = SourceAnswer(prepared, prepared.sources[0], call, window)
    async with aclosing(answer.pieces()) as pieces:
        async for piece in pieces:
            yield _message(inference.piece(piece.text), is_last=False)
    response = answer.response()
    call.count_answer(response)
    yield _message(inference.end(response.hypotheses[0]), is_last=True)


def _message(response: Response, *, is_last: bool) -> StreamResponse:
    # Triton's mark of the last response, for clients that do not know how many there will be.
    response.parameters["triton_final_response"].bool_param = is_last
    return StreamResponse(infer_response=response)


async def _until(draining: asyncio.Event, requests: Requests) -> AsyncGenerator[Request, None]:
    """Yields requests as they arrive; reads each only when the one before it is answered."""
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
