import asyncio
import math
import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from tests.support.process import eventually
from tests.support.sockets import connections_to

from seqserve.errors import NotFound, OptionError, Unreachable
from seqserve.load import grpc_callers
from seqserve.load.grpc_callers import GrpcCaller, OpenInferenceCaller, parameters_of
from seqserve.open_inference import open_inference_pb2 as pb
from seqserve.open_inference import open_inference_pb2_grpc
from seqserve.requests import generate_request

from ..answers import stream_of
from ..fake_server import FakeServer

TEXT = [("text", "BYTES", [-1, 1])]


class Peer(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """A server of another make; its model gives a text back, a stream word by word."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.inputs: list[tuple[str, str, list[int]]] = TEXT
        self.is_raw = False
        self._server = grpc.server(ThreadPoolExecutor(4))
        open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def ModelMetadata(self, request: Any, context: Any) -> Any:
        if request.name != "echo":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.name}")
        described = pb.ModelMetadataResponse.TensorMetadata
        return pb.ModelMetadataResponse(
            inputs=[
                described(name=name, datatype=kind, shape=shape)
                for name, kind, shape in self.inputs
            ],
            outputs=[
                described(name="score", datatype="FP32", shape=[-1]),
                described(name="said", datatype="BYTES", shape=[-1]),
                described(name="reason", datatype="BYTES", shape=[-1]),
            ],
        )

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self._text(request) == "busy":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much to do")
        return self._response(self._text(request))

    def ModelStreamInfer(self, requests: Any, context: Any) -> Iterator[Any]:
        for request in requests:
            self.requests.append(request)
            if self._text(request) == "busy":
                yield pb.ModelStreamInferResponse(error_message="too much to do")
                return
            for word in (*self._text(request).split(), ""):
                yield pb.ModelStreamInferResponse(infer_response=self._response(word))

    @staticmethod
    def _text(request: Any) -> str:
        text: str = request.inputs[0].contents.bytes_contents[0].decode()
        return text

    def _response(self, text: str) -> Any:
        response = pb.ModelInferResponse(model_name="echo")
        output = response.outputs.add(name="said", datatype="BYTES", shape=[1])
        if self.is_raw:
            response.raw_output_contents.append(len(text).to_bytes(4, "little") + text.encode())
        else:
            output.contents.bytes_contents.append(text.encode())
        return response


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.stop()


def caller_of(peer: Peer, **given: Any) -> OpenInferenceCaller:
    return OpenInferenceCaller(peer.target, **{"model": "echo", "parameters": {}} | given)


async def test_an_answer(peer: Peer) -> None:
    parameters = {"beam_size": 2, "length_penalty": 0.5, "is_short": True, "keep": '["a"]'}
    async with caller_of(peer, version=3, parameters=parameters) as caller:
        reply = await caller.send("Grüße dich", 60.0)
    assert (reply.error, reply.tokens, reply.gaps_s) == ("", 0, ())
    [request] = peer.requests
    assert (request.model_name, request.model_version) == ("echo", "3")
    [tensor] = request.inputs
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("text", "BYTES", [1, 1])
    assert list(tensor.contents.bytes_contents) == ["Grüße dich".encode()]
    # One text is enough to know that an answer is complete.
    assert [output.name for output in request.outputs] == ["said"]
    given = {
        name: value.WhichOneof("parameter_choice") for name, value in request.parameters.items()
    }
    assert given == {
        "beam_size": "int64_param",
        "length_penalty": "double_param",
        "is_short": "bool_param",
        "keep": "string_param",
    }


@pytest.mark.parametrize("is_raw", [False, True])
async def test_the_pieces_of_a_stream(peer: Peer, is_raw: bool) -> None:
    peer.is_raw = is_raw
    async with caller_of(peer, streamed=True) as caller:
        reply = await caller.send("three words here", 60.0)
    # The last message has no text, and is no piece.
    assert (reply.error, len(reply.gaps_s)) == ("", 2)
    assert peer.requests[0].parameters["stream"].bool_param


@pytest.mark.parametrize(("streamed", "error"), [(False, "RESOURCE_EXHAUSTED"), (True, "UNKNOWN")])
async def test_an_error_is_told_and_not_tried_again(peer: Peer, streamed: bool, error: str) -> None:
    async with caller_of(peer, streamed=streamed) as caller:
        reply = await caller.send("busy", 60.0)
    assert (reply.error, reply.details) == (error, "too much to do")
    assert len(peer.requests) == 1


async def test_another_process_can_call_and_a_model_that_is_not_there(peer: Peer) -> None:
    caller: OpenInferenceCaller = pickle.loads(pickle.dumps(caller_of(peer)))
    async with caller:
        assert not (await caller.send("a", 60.0)).error
    with pytest.raises(NotFound, match="no model other"):
        await caller_of(peer, model="other").__aenter__()


async def test_which_input_takes_the_text(peer: Peer) -> None:
    peer.inputs = [("a", "BYTES", [-1]), ("b", "BYTES", [1]), ("n", "INT32", [1])]
    async with caller_of(peer, input_name="b") as caller:
        await caller.send("x", 60.0)
    assert (peer.requests[0].inputs[0].name, list(peer.requests[0].inputs[0].shape)) == ("b", [1])
    for name, reason in ((None, "does not have one input of texts"), ("n", "has no input 'n'")):
        with pytest.raises(OptionError, match=f"--input-name: the model {reason}.*: a, b"):
            await caller_of(peer, input_name=name).__aenter__()


def test_options_become_parameters() -> None:
    numbers = {"beam_size": 2, "length_penalty": 0.5, "disable_unk": True}
    request = generate_request("", **numbers, suppress_sequences=[["a", "b"]], keep=["ü"])
    lists = {"suppress_sequences": '[{"tokens": ["a", "b"]}]', "keep": '["ü"]'}
    assert parameters_of(request.options) == numbers | lists


REQUEST = generate_request("", model="m", beam_size=2)


def grpc_caller_of(target: str, *, streamed: bool = False, token: str | None = None) -> GrpcCaller:
    return GrpcCaller(target, REQUEST, streamed=streamed, token=token)


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_of_ours(server: FakeServer, streamed: bool) -> None:
    async with grpc_caller_of(server.target, streamed=streamed, token="secret") as caller:
        reply = await caller.send("a b c", math.inf)
    assert (reply.error, reply.tokens, reply.source_tokens) == ("", 3, 4)
    # All messages but the last are pieces.
    pieces = len(stream_of("a b c", REQUEST.options)) - 1
    assert len(reply.gaps_s) == (pieces - 1 if streamed else 0)
    assert not math.isinf(reply.first_at_s)
    [request] = server.requests
    assert (request.source, request.model, request.options.beam_size) == ("a b c", "m", 2)
    assert server.authorizations == ["Bearer secret"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_error_of_ours_is_told_once(server: FakeServer, streamed: bool) -> None:
    async with grpc_caller_of(server.target, streamed=streamed) as caller:
        reply = await caller.send("busy 9 times", 60.0)
        late = await caller.send("late", 0.0)
    assert (reply.error, reply.details) == (
        "RESOURCE_EXHAUSTED",
        "resource_exhausted, says the fake",
    )
    assert late.error == "DEADLINE_EXCEEDED"
    assert [request.source for request in server.requests].count("busy 9 times") == 1


@pytest.mark.parametrize("connections", [1, 3])
async def test_connections_of_a_load_are_there_before(server: FakeServer, connections: int) -> None:
    caller = GrpcCaller(server.target, REQUEST, connections=connections)
    async with caller:
        assert connections_to(server.target) == connections
        await asyncio.gather(*(caller.send("a", 60.0) for _ in range(3 * 32)))
        assert connections_to(server.target) == connections
    assert set(Counter(server.peers).values()) == {3 * 32 // connections}


async def test_connections_of_a_load_grow_by_themselves(server: FakeServer) -> None:
    async with grpc_caller_of(server.target) as caller:
        assert connections_to(server.target) == 1
        await asyncio.gather(*(caller.send("a", 60.0) for _ in range(32)))
        await eventually(lambda: connections_to(server.target) == 2)


async def test_a_server_that_is_away_or_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_callers, "_CONNECT_S", 0.05)
    with pytest.raises(Unreachable, match=r"no connection to localhost:1 within 0\.05 s"):
        await grpc_caller_of("localhost:1").__aenter__()
    with pytest.raises(OptionError, match="in clear"):
        await grpc_caller_of("example.com:1", token="secret").__aenter__()
