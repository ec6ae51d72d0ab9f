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

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import Draining, InvalidRequest, ServiceError
from seqserve_server.front.answer.window import answer_all
from seqserve_server.front.call.server_call import ServerCall, current
from seqserve_server.front.call.wire import Context, Unreadable
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.services.generation import GenerationServicer
from seqserve_server.front.services.open_inference.inference_request import (
    STREAM,
    InferenceRequest,
    renamed,
)
from seqserve_server.front.services.open_inference.model_control import (
    ModelControlServicer,
    version_of,
)
from seqserve_server.front.services.open_inference.pb import open_inference_pb2
from seqserve_server.front.telemetry.metrics import Metrics

Request = open_inference_pb2.ModelInferRequest
Response = open_inference_pb2.ModelInferResponse
StreamResponse = open_inference_pb2.ModelStreamInferResponse
Requests: TypeAlias = AsyncIterator[Request | Unreadable]


class InferenceServicer(ModelControlServicer):
    """Tensors of texts in, tensors of texts out."""

    def __init__(
        self,
        rollout: Rollout,
        metrics: Metrics,
        generation: GenerationServicer,
        draining: asyncio.Event,
    ) -> None:
        """Takes the models, their figures, what answers, and when no request is read any more."""
        super().__init__(rollout, metrics, draining)
        self._generation = generation

    async def ModelInfer(self, request: Request, context: Context) -> Response:
        """Generates from every text of a request; one text that fails ends the call."""
        call = current.get()
        asked = await self._read(request, call)
        if asked.is_streamed:
            raise InvalidRequest(
                f"parameters.{STREAM}", "is set; call ModelStreamInfer, or leave it out"
            )
        return await self._whole(asked, context, call)

    async def ModelStreamInfer(
        self, requests: Requests, context: Context
    ) -> AsyncGenerator[StreamResponse, None]:
        """Answers one request after the other; one that fails is answered with its message."""
        call = current.get()
        async with aclosing(_until(self._draining, requests)) as readable:
            async for request in readable:
                async with aclosing(self._streamed(request, context, call)) as responses:
                    async for response in responses:
                        yield response

    async def _read(self, request: Request, call: ServerCall) -> InferenceRequest:
        """Checks a request and waits until there is memory for its answers."""
        version = version_of("model_version", request.model_version)
        model = call.resolve(self._repository, request.model_name, version)
        asked = InferenceRequest.read(request, model)
        try:
            await self._generation.reserve(model, asked.options, len(asked.texts.texts), request)
        except InvalidRequest as error:
            raise renamed(error, 0) from None
        return asked

    async def _whole(self, asked: InferenceRequest, context: Context, call: ServerCall) -> Response:
        requests = asked.generate_requests()
        # A lone text is refused at once, so that the client can go elsewhere; one of many waits.
        is_alone = len(requests) == 1
        generate = self._generation.Generate if is_alone else self._generation.generate_in_time

        async def answer(
            indexed: tuple[int, generation_pb2.GenerateRequest],
        ) -> generation_pb2.GenerateResponse:
            index, request = indexed
            current.set(call.part(call.began_s))
            try:
                return await generate(request, context)
            except InvalidRequest as error:
                raise renamed(error, index) from None

        responses = await answer_all(enumerate(requests), answer, asked.model.engine.slots)
        for response in responses:
            call.answered(response)
        return asked.response([response.hypotheses for response in responses])

    async def _streamed(
        self, request: Request, context: Context, call: ServerCall
    ) -> AsyncGenerator[StreamResponse, None]:
        """Answers one request of a stream."""
        part = call.request(time.monotonic())
        # Its tokens count as those of the call.
        part.facts = call.facts
        current.set(part)
        try:
            asked = await self._read(request, part)
            if not asked.is_streamed:
                yield _message(await self._whole(asked, context, part), is_last=True)
                return
            async with aclosing(self._pieces(asked, context, part)) as responses:
                async for response in responses:
                    yield response
        except ServiceError as error:
            failed = _message(Response(id=request.id), is_last=True)
            failed.error_message = part.failed(error).message
            yield failed
        finally:
            call.stands_for(part)
            part.release()
            part.free()

    async def _pieces(
        self, asked: InferenceRequest, context: Context, call: ServerCall
    ) -> AsyncGenerator[StreamResponse, None]:
        [request] = asked.generate_requests()
        current.set(call.part(call.began_s))
        try:
            async with aclosing(self._generation.GenerateStream(request, context)) as messages:
                async for message in messages:
                    if message.HasField("piece"):
                        yield _message(asked.piece(message.piece.text), is_last=False)
                    else:
                        call.answered(message.result)
                        yield _message(asked.end(message.result.hypotheses[0]), is_last=True)
        except InvalidRequest as error:
            raise renamed(error, 0) from None


def _message(response: Response, *, is_last: bool) -> StreamResponse:
    # Triton's mark of the last response, for clients that do not know how many there will be.
    response.parameters["triton_final_response"].bool_param = is_last
    return StreamResponse(infer_response=response)


async def _until(draining: asyncio.Event, requests: Requests) -> AsyncGenerator[Request, None]:
    """Gives requests as they arrive; reads each only when the one before it is answered."""
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
