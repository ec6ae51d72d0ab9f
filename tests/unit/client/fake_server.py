"""A real gRPC server with predictable answers; the first word of a source may change its behaviour.

``fail CODE …`` fails with that status, ``busy N …`` is refused N times before it is answered,
``cancelled N …`` is cancelled N times as by a proxy,
``hang …`` never ends (a stream sends two pieces first), ``late …`` is answered 0.2 s later.
While ``is_draining``, ``Generate`` and ``GenerateStream`` are refused. In a
bulk call ``fail`` fails alone, ``later N …`` fails alone N times with UNAVAILABLE, ``busy`` and
``end CODE …`` end the call, ``hang`` gets no answer, and ``late`` gets one after the next twenty
sources, or at the end. With ``max_requests`` it reads several requests in a message, and answers
those together.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from seqserve.v1 import generation_pb2, generation_pb2_grpc, model_pb2, model_pb2_grpc

from .answers import answer, attended, scored, stream_of, tokenized

PATIENCE_S = 60.0
"""Limit on waiting for an expected event; only a failing test waits for so long."""


class FakeServer(
    generation_pb2_grpc.GenerationServiceServicer, model_pb2_grpc.ModelServiceServicer
):
    def __init__(
        self,
        credentials: grpc.ServerCredentials | None = None,
        target: str = "127.0.0.1:0",
        max_message_bytes: int = 1 << 20,
    ) -> None:
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        """The metadata of each call."""
        self.peers: list[str] = []
        """The connection of each call."""
        self.timeouts_s: list[float] = []
        """The time that each call had left; many years without a deadline."""
        self.cancelled = threading.Event()
        self.most_at_once = 0
        self.bulk_calls = 0
        self.max_requests = 0
        """Of a message of a bulk call; 0 for a server that knows of one alone."""
        self.messages: list[Any] = []
        """The messages of bulk calls."""
        self.is_draining = False
        self.max_decoding_length = 1 << 31
        self._seen: Counter[str] = Counter()
        self._running = 0
        self._lock = threading.Lock()
        self._server = grpc.server(
            ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", max_message_bytes)]
        )
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(self, self._server)
        model_pb2_grpc.add_ModelServiceServicer_to_server(self, self._server)
        if credentials is None:
            port = self._server.add_insecure_port(target)
        else:
            port = self._server.add_secure_port(target, credentials)
        self.target = f"127.0.0.1:{port}"
        self._server.start()

    @property
    def authorizations(self) -> list[str | None]:
        """The authorization of each call; None without one."""
        return [sent.get("authorization") for sent in self.metadata]

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def Generate(self, request: Any, context: Any) -> Any:
        with self._lock:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            self._begin(request, context)
            if request.source.startswith("hang"):
                self.cancelled.wait(3 * PATIENCE_S)
            return answer_to(request)
        finally:
            with self._lock:
                self._running -= 1

    def GenerateStream(self, request: Any, context: Any) -> Iterator[Any]:
        self._begin(request, context)
        messages = stream_of(request.source, request.options)
        if request.source.startswith("hang"):
            yield from messages[:2]
            self.cancelled.wait(3 * PATIENCE_S)
        yield from messages

    def GenerateBatch(self, request: Any, context: Any) -> Any:
        context.add_callback(self.cancelled.set)
        self._note_metadata(context)
        shared = {"model": request.model, "version": request.version, "options": request.options}
        outcomes = []
        for source in request.sources:
            if source.startswith("end "):
                fail(context, grpc.StatusCode[source.split()[1]])
            alone = generation_pb2.GenerateRequest(
                source=source, priority=request.priority, **shared
            )
            outcomes.append(self._outcome(alone, context))
        if any(source.startswith("hang") for source in request.sources):
            self.cancelled.wait(3 * PATIENCE_S)
        return generation_pb2.GenerateBatchResponse(outcomes=outcomes)

    def GenerateBulk(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(self.cancelled.set)
        self._note_metadata(context)
        with self._lock:
            self.bulk_calls += 1
        late: dict[int, Any] = {}
        count, hangs, is_told = -1, False, False
        for message in requests:
            self.messages.append(message)
            if self.max_requests and message.max_response_bytes and not is_told:
                is_told = True
                yield generation_pb2.GenerateBulkResponse(max_requests=self.max_requests)
            ready: list[Any] = []
            for bulk in (message, *message.more) if self.max_requests else (message,):
                count += 1
                word, code, *_ = [*bulk.request.source.split(), "", ""]
                response = generation_pb2.GenerateBulkResponse(
                    id=bulk.id, outcome=self._outcome(bulk.request, context)
                )
                if word == "end":
                    fail(context, grpc.StatusCode[code])
                if word == "late":
                    late[count + 20] = response
                elif word == "hang":
                    hangs = True
                else:
                    ready.append(response)
                if count in late:
                    ready.append(late.pop(count))
            yield from joined(ready)
        if hangs:
            self.cancelled.wait(3 * PATIENCE_S)
        yield from joined([*late.values()]) if self.max_requests else late.values()

    def _times(self, request: Any) -> int:
        """Notes a request; returns how often its source has come."""
        with self._lock:
            self.requests.append(request)
            self._seen[request.source] += 1
            return self._seen[request.source]

    def _outcome(self, request: Any, context: Any) -> Any:
        times = self._times(request)
        word, detail, *_ = [*request.source.split(), "", ""]
        if word == "busy" and times <= int(detail):
            fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED)
        code = "INVALID_ARGUMENT" if not word else detail if word == "fail" else ""
        if word == "later" and times <= int(detail):
            code = "UNAVAILABLE"
        if code:
            number, message = grpc.StatusCode[code].value[0], f"{code.lower()}, says the fake"
            field = "source" if code == "INVALID_ARGUMENT" else ""
            failed = generation_pb2.Failure(code=number, message=message, field=field)
            return generation_pb2.Outcome(failure=failed)
        return generation_pb2.Outcome(response=answer_to(request))

    def Score(self, request: Any, context: Any) -> Any:
        self._begin(request, context)
        return scored(request)

    def Attention(self, request: Any, context: Any) -> Any:
        self._begin(request, context)
        return attended(request)

    def Tokenize(self, request: Any, context: Any) -> Any:
        self._note(request, context)
        return tokenized(request)

    def Detokenize(self, request: Any, context: Any) -> Any:
        self._note(request, context)
        text = " ".join(f"w{id_}" for id_ in request.token_ids)
        return generation_pb2.DetokenizeResponse(model="capitals", version=2, text=text)

    def ListModels(self, request: Any, context: Any) -> Any:
        self._note_metadata(context)
        return model_pb2.ListModelsResponse(models=MODELS)

    def GetModel(self, request: Any, context: Any) -> Any:
        for model in MODELS:
            if model.name == (request.model or "capitals"):
                return model_pb2.GetModelResponse(model=model)
        context.abort(grpc.StatusCode.NOT_FOUND, "there are: capitals, broken")

    def SetTraffic(self, request: Any, context: Any) -> Any:
        self._note(request, context)
        if request.model == "missing":
            context.abort(grpc.StatusCode.NOT_FOUND, "there are: capitals, broken")
        return model_pb2.SetTrafficResponse(models=MODELS)

    def ListGlossaries(self, request: Any, context: Any) -> Any:
        self._note_metadata(context)
        return model_pb2.ListGlossariesResponse(glossaries=GLOSSARIES)

    def _note_metadata(self, context: Any) -> None:
        self.metadata.append(dict(context.invocation_metadata()))
        self.peers.append(context.peer())
        self.timeouts_s.append(context.time_remaining())

    def _note(self, request: Any, context: Any) -> None:
        self._note_metadata(context)
        self.requests.append(request)

    def _begin(self, request: Any, context: Any) -> None:
        self._note_metadata(context)
        times, words = self._times(request), request.source.split()
        if self.is_draining:
            fail(context, grpc.StatusCode.UNAVAILABLE)
        options = getattr(request, "options", generation_pb2.GenerationOptions())
        if options.max_decoding_length > self.max_decoding_length:
            fail(context, grpc.StatusCode.INVALID_ARGUMENT, "options.max_decoding_length")
        if options.beam_size > 64:
            fail(context, grpc.StatusCode.INVALID_ARGUMENT, "options.beam_size")
        if words[0] == "fail":
            fail(context, grpc.StatusCode[words[1]])
        if words[0] == "busy" and times <= int(words[1]):
            fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED)
        if words[0] == "cancelled" and times <= int(words[1]):
            fail(context, grpc.StatusCode.CANCELLED)
        if words[0] == "late":
            time.sleep(0.2)
        if words[0] == "hang" and not context.add_callback(self.cancelled.set):
            # The caller has already gone.
            self.cancelled.set()


def answer_to(request: Any) -> Any:
    model, version = request.model, request.version
    return answer(request.source, model=model, version=version, options=request.options)


def joined(responses: list[Any]) -> list[Any]:
    """Makes one response of several."""
    for first, *more in [responses] if responses else []:
        first.more.extend(more)
    return responses[:1]


def fail(context: Any, code: grpc.StatusCode, field: str = "source") -> None:
    """Fails like the real server, with the details of the status."""
    status = status_pb2.Status(code=code.value[0], message=f"{code.name.lower()}, says the fake")
    detail = any_pb2.Any()
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description="bad")
        detail.Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        status.details.append(detail)
    if code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
        delay = duration_pb2.Duration(nanos=20_000_000)
        detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status.details.append(detail)
    context.abort_with_status(rpc_status.to_status(status))


GLOSSARIES = [
    model_pb2.Glossary(name="products", target_language="de", **facts)
    for facts in (
        {"source_language": "en", "entry_count": 1200},
        {"source_language": "ko", "entry_count": 9, "fault": "line 2: is not UTF-8"},
    )
]
_CAPITALS: Any = {"version": 2, "state": model_pb2.MODEL_STATE_READY, "is_default": True}
_CAPITALS |= {"precision": "fp32", "provider": "cpu", "licence": "Apache-2.0"}
_CAPITALS |= {"max_source_length": 64, "max_target_length": 80, "vocabulary_size": 1000}
_CAPITALS |= {"traffic_share": 1.0, "slots": 64, "slots_in_use": 3, "queue_depth": 5}
_REASON = "decoder.onnx: the hash differs from the manifest's"
_BROKEN: Any = {"version": 1, "state": model_pb2.MODEL_STATE_FAILED, "state_reason": _REASON}
MODELS = [
    model_pb2.Model(
        name="capitals", description="Text in capitals", has_shortlist=True, **_CAPITALS
    ),
    model_pb2.Model(name="broken", **_BROKEN),
]
