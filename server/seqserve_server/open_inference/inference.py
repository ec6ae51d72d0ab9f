"""``inference.GRPCInferenceService``, the Open Inference Protocol: inference.

Each text becomes a request of ``seqserve.v1``, so both protocols give the same answers and the same
errors. Of Triton's extensions, those are here that its clients and perf_analyzer use.
Sources: Open Inference Protocol,
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md;
Triton's extensions, https://github.com/triton-inference-server/server/tree/main/docs/protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import Draining, InvalidRequest, ServiceError, Unreadable
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.answer import answer, counted_stream
from seqserve_server.front.generate.job import Job
from seqserve_server.front.generate.records import GenerateRequest, Source
from seqserve_server.front.generate.route import find_model, route_to
from seqserve_server.front.generate.source import read
from seqserve_server.open_inference.model_control import ModelControlServicer, version_of
from seqserve_server.open_inference.parameters import flag, options_of
from seqserve_server.open_inference.tensors import (
    TEXT,
    Output,
    Texts,
    add_output,
    outputs_of,
    texts_of,
)

Hypothesis = generation_pb2.Hypothesis
Request = open_inference_pb2.ModelInferRequest
Response = open_inference_pb2.ModelInferResponse
StreamResponse = open_inference_pb2.ModelStreamInferResponse
Requests: TypeAlias = AsyncIterator[Request | Unreadable]

STREAM = "stream"


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """Texts for a model, and what to return."""

    id: str
    manifest: Manifest
    texts: Texts
    outputs: list[Output]
    options: generation_pb2.GenerationOptions
    is_streamed: bool

    @classmethod
    def read(cls, request: Request, manifest: Manifest) -> InferenceRequest:
        """Checks the tensors and parameters of a request for a model."""
        texts = texts_of(request)
        outputs = outputs_of(request)
        parameters = dict(request.parameters)
        is_streamed = flag(parameters, STREAM)
        parameters.pop(STREAM, None)
        options = options_of(parameters)
        # Tensors have no place for segments.
        options.segmentation = SegmentationMode.NONE.value
        options.return_scores = any(output.is_score for output in outputs)
        if is_streamed and (len(texts.texts) > 1 or options.num_hypotheses > 1):
            raise InvalidRequest(
                f"parameters.{STREAM}", "is set; send one text, and request one hypothesis"
            )
        return cls(request.id, manifest, texts, outputs, options, is_streamed)

    def generate_request(self) -> GenerateRequest:
        """Writes the request of ``seqserve.v1``: for a lone text, or for a batch."""
        texts = self.texts.texts
        if len(texts) == 1:
            return generation_pb2.GenerateRequest(source=texts[0], options=self.options)
        return generation_pb2.GenerateBatchRequest(sources=texts, options=self.options)

    def response(self, answers: Sequence[generation_pb2.GenerateResponse]) -> Response:
        """Builds the response from the answers to all texts."""
        return self._response(self.outputs, [answer.hypotheses for answer in answers])

    def piece(self, text: str) -> Response:
        """Builds the response for a piece of the text, without the other outputs."""
        outputs = [output for output in self.outputs if output.name == TEXT]
        return self._response(outputs, [[Hypothesis(text=text)]])

    def end(self, best: Hypothesis) -> Response:
        """Builds the last response of a stream: the other outputs, and no more text."""
        rest = Hypothesis()
        rest.CopyFrom(best)
        rest.text = ""
        return self._response(self.outputs, [[rest]])

    def _response(
        self, outputs: Sequence[Output], answers: Sequence[Sequence[Hypothesis]]
    ) -> Response:
        name, version = self.manifest.name, str(self.manifest.version)
        response = Response(model_name=name, model_version=version, id=self.id)
        width = max(1, self.options.num_hypotheses)
        is_flat = self.texts.is_flat and width == 1
        shape = [len(answers)] if is_flat else [len(answers), width]
        is_raw = self.texts.is_raw
        for output in outputs:
            values = [
                value for hypotheses in answers for value in output.elements(hypotheses, width)
            ]
            add_output(response, output.name, output.datatype, shape, values, is_raw=is_raw)
        return response


def renamed(error: InvalidRequest, index: int) -> InvalidRequest:
    """Names the field of an error in the ``GenerateRequest`` of a text as this protocol does."""
    group, _, name = error.field.partition(".")
    if group == "source":
        return InvalidRequest(f"inputs.{TEXT}[{index}]", error.reason)
    return InvalidRequest(f"parameters.{name}" if group == "options" else error.field, error.reason)


class InferenceServicer(ModelControlServicer):
    """Tensors of texts in, tensors of texts out."""

    async def ModelInfer(self, request: Request, call: ServerCall) -> Response:
        """Generates from every text of a request; one text that fails ends the call."""
        inference, job = await self._read(request, call)
        if inference.is_streamed:
            raise InvalidRequest(
                f"parameters.{STREAM}", "is set; call ModelStreamInfer, or leave it out"
            )
        responses = await _all(job)
        # The tokens of a lone text are noted already, and count with its answer.
        call.facts.clear()
        _record(job, responses, call)
        return inference.response(responses)

    async def ModelStreamInfer(
        self, requests: Requests, call: ServerCall
    ) -> AsyncGenerator[StreamResponse, None]:
        """Answers one request after the other; one that fails is answered with its message."""
        async with aclosing(_until(self._draining, requests)) as readable:
            async for request in readable:
                async with aclosing(self._streamed(request, call)) as responses:
                    async for response in responses:
                        yield response

    async def _read(self, request: Request, call: ServerCall) -> tuple[InferenceRequest, Job]:
        version = version_of("model_version", request.model_version)
        model = await find_model(request.model_name, version, self._repository, call)
        inference = InferenceRequest.read(request, model.manifest)
        generate = inference.generate_request()
        try:
            route = route_to([model], generate, self._features, call)
            return inference, await read(generate, route, call)
        except InvalidRequest as error:
            raise renamed(error, 0) from None

    async def _streamed(
        self, request: Request, call: ServerCall
    ) -> AsyncGenerator[StreamResponse, None]:
        request_call = call.child()
        try:
            if refusal := call.quota_error():
                raise refusal
            inference, job = await self._read(request, request_call)
            if not inference.is_streamed:
                responses = await _all(job)
                _record(job, responses, call)
                yield _message(inference.response(responses), is_last=True)
                return
            async with aclosing(counted_stream(job)) as pieces:
                async for each in pieces:
                    if isinstance(each, generation_pb2.Piece):
                        yield _message(inference.piece(each.text), is_last=False)
                    else:
                        call.record_one_of_many(each)
                        yield _message(inference.end(each.hypotheses[0]), is_last=True)
        except ServiceError as error:
            failed = _message(Response(id=request.id), is_last=True)
            failed.error_message = request_call.failed(error).message
            yield failed
        finally:
            call.adopt_model(request_call)
            request_call.release_models()
            request_call.release_memory()


def _record(
    job: Job, responses: Sequence[generation_pb2.GenerateResponse], call: ServerCall
) -> None:
    for source, response in zip(job.sources, responses, strict=True):
        call.record_one_of_many(response)
        if isinstance(source, Source):
            call.used(len(source.text), response)


async def _all(job: Job) -> list[generation_pb2.GenerateResponse]:
    for index, source in enumerate(job.sources):
        if isinstance(source, InvalidRequest):
            raise renamed(source, index)
    # Parts have a separate window: an answer keeps its place while its parts wait for theirs.
    in_order = job.window.inner.in_order(job.sources, partial(answer, job))
    async with aclosing(in_order):
        return [response.result() async for response in in_order]


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
