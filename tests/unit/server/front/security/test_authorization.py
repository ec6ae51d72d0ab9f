import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from tests.support.logged import fields_of
from tests.unit.server.front.calls import details, failure, request, trailers
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.security.test_tokens import line
from tests.unit.server.front.service import Service, noted_specs, serving

from seqserve.auth import Scope
from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2, model_pb2
from seqserve_server.front.call.interceptor import CallInterceptor
from seqserve_server.front.security.protection import Security
from seqserve_server.front.security.tokens import SCOPES, Authorization, Tokens, scope_of
from seqserve_server.front.security.usage import Usage
from seqserve_server.front.telemetry.metrics import Metrics

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED
LARGE = b"a" * 300_000
Metadata = tuple[tuple[str, str], ...]


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


GOOD = bearer("good")
BAD: list[Metadata] = [
    (),
    bearer("wrong"),
    bearer(""),
    bearer("goo"),
    bearer("good "),
    (("authorization", "good"),),
    (("authorization", "Basic good"),),
    (("x-authorization", "Bearer good"),),
    # The first of two counts.
    (*bearer("wrong"), *bearer("good")),
]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    both = (Scope.ADMIN, Scope.GENERATE)
    path.write_text(
        line("good", *both) + line("caller", name="web") + line("operator", Scope.ADMIN, name="op")
    )
    return path


# ---- the table


INFERENCE = "/inference.GRPCInferenceService"
MODELS = "/seqserve.v1.ModelService"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.mark.parametrize(
    ("service", "methods", "scope"),
    [
        ("/grpc.health.v1.Health", "Check Watch", None),
        ("/grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo", Scope.GENERATE),
        ("/grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", Scope.GENERATE),
        ("/seqserve.v1.GenerationService", "Generate", Scope.GENERATE),
        (MODELS, "ListModels GetGlossary GetModel", Scope.GENERATE),
        (INFERENCE, "ServerLive ServerReady ModelReady", None),
        (INFERENCE, "ServerMetadata ModelMetadata ModelConfig", Scope.GENERATE),
        (INFERENCE, "ModelInfer ModelStreamInfer RepositoryIndex", Scope.GENERATE),
        (INFERENCE, "RepositoryModelLoad RepositoryModelUnload", Scope.ADMIN),
    ],
)
def test_method_needs_the_scope_of_its_row(service: str, methods: str, scope: Scope | None) -> None:
    assert {scope_of(f"{service}/{method}") for method in methods.split()} == {scope}


@pytest.mark.parametrize(
    "method",
    [
        "/seqserve.v1.ModelService/LoadModel",
        "/seqserve.v1.ModelService/",
        "/seqserve.v1.ModelService/ListModels/",
        "/seqserve.v2.GenerationService/Generate",
        "/x.grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health",
        "/inference.GRPCInferenceServices/ServerLive",
        "/inference/GRPCInferenceService/ServerLive",
        "grpc.health.v1.Health/Check",
        "/",
        "",
    ],
)
def test_unlisted_method_needs_the_admin_scope(method: str) -> None:
    assert scope_of(method) is Scope.ADMIN


def test_every_method_of_our_services_has_a_row() -> None:
    for file in (generation_pb2, model_pb2, open_inference_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                name = f"/{service.full_name}/{method.name}"
                assert name in SCOPES or f"/{service.full_name}/" in SCOPES, name


# ---- calls of every shape, on a server with the two interceptors alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A server of one service that has no row in the table, with a method of each shape."""

    target: str
    reached: list[str]
    """What calls reached: requests that were read, and handlers that ran."""

    async def call(self, kind: str, metadata: Metadata, *, ends: bool = True) -> list[bytes]:
        """Calls a method and returns its responses; a stream of requests may stay open.

        It uses synchronous gRPC in a thread, because asyncio's client may report INTERNAL for a
        call that ends while requests are still being sent.
        """
        return await asyncio.to_thread(self._call, kind, metadata, ends)

    def _call(self, kind: str, metadata: Metadata, ends: bool) -> list[bytes]:
        may_end = threading.Event()

        def requests() -> Iterator[bytes]:
            yield LARGE
            if not ends:
                may_end.wait(PATIENCE_S)

        sent = requests() if kind.startswith("stream") else LARGE
        with grpc.insecure_channel(self.target) as channel:
            callable_: Any = getattr(channel, kind)(f"/x.Door/{kind}")
            try:
                answer = callable_(sent, metadata=metadata, timeout=PATIENCE_S)
                return list(answer) if kind.endswith("stream") else [answer]
            finally:
                may_end.set()


KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def handlers(reached: list[str]) -> grpc.GenericRpcHandler:
    def read(data: bytes) -> bytes:
        reached.append("read")
        return data

    async def one(request: Any, context: Any) -> bytes:
        reached.append("ran")
        return b"answer"

    async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
        reached.append("ran")
        yield b"answer"

    methods = {}
    for kind in KINDS:
        make: Callable[..., Any] = getattr(grpc, f"{kind}_rpc_method_handler")
        methods[kind] = make(many if kind.endswith("stream") else one, read)
    return grpc.method_handlers_generic_handler("x.Door", methods)


@pytest.fixture
async def door(tokens: Path) -> AsyncIterator[Door]:
    calls = CallInterceptor(Metrics(), authorization=Authorization(Tokens(tokens), Usage()))
    server = grpc.aio.server(interceptors=[calls])
    reached: list[str] = []
    server.add_generic_rpc_handlers((handlers(reached),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield Door(target=f"127.0.0.1:{port}", reached=reached)
    await server.stop(None)
    await asyncio.wait_for(calls.active.wait_idle(), PATIENCE_S)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_shape_of_call_is_refused_with_the_same_message(door: Door, kind: str) -> None:
    messages = set()
    for metadata in BAD:
        error = await failure(door.call(kind, metadata))
        assert error.code() is UNAUTHENTICATED
        messages.add(error.details())
        assert details(error, ErrorInfo).reason == "NO_VALID_TOKEN"
    assert messages == {"send a valid token as metadata: `authorization: Bearer TOKEN`"}
    assert door.reached == []


@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
async def test_open_stream_is_refused_at_once(door: Door, kind: str) -> None:
    error = await failure(door.call(kind, (), ends=False))
    assert error.code() is UNAUTHENTICATED


@pytest.mark.parametrize("kind", KINDS)
async def test_every_shape_of_call_needs_a_token_with_the_scope(door: Door, kind: str) -> None:
    error = await failure(door.call(kind, bearer("caller")))
    assert error.code() is DENIED
    assert error.details() == (
        "the token lacks the scope 'admin', which this method needs; `seqserve token --scope admin`"
        " makes one that has it"
    )
    assert details(error, ErrorInfo).reason == "SCOPE_MISSING"
    assert door.reached == []
    assert await door.call(kind, GOOD) == [b"answer"]
    assert "ran" in door.reached


@pytest.mark.parametrize("metadata", [(), bearer("caller"), GOOD])
async def test_unknown_method_is_unimplemented_for_all(door: Door, metadata: Metadata) -> None:
    async with grpc.aio.insecure_channel(door.target) as channel:
        error = await failure(channel.unary_unary("/x.Door/Window")(b"", metadata=metadata))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


# ---- the whole service


@pytest.fixture
async def guarded(tokens: Path) -> AsyncIterator[Service]:
    async with serving(security=Security(tokens=Tokens(tokens))) as service:
        yield service


@pytest.mark.parametrize(
    ("method", "kind", "scope"),
    [
        ("/seqserve.v1.GenerationService/Generate", "unary_unary", Scope.GENERATE),
        ("/seqserve.v1.GenerationService/GenerateStream", "unary_stream", Scope.GENERATE),
        (f"{MODELS}/ListModels", "unary_unary", Scope.GENERATE),
        (f"{INFERENCE}/ServerLive", "unary_unary", None),
        (f"{INFERENCE}/ServerReady", "unary_unary", None),
        (f"{INFERENCE}/ModelReady", "unary_unary", None),
        (f"{INFERENCE}/ServerMetadata", "unary_unary", Scope.GENERATE),
        (f"{INFERENCE}/RepositoryModelLoad", "unary_unary", Scope.ADMIN),
        ("/grpc.health.v1.Health/Check", "unary_unary", None),
        (REFLECTION, "stream_stream", Scope.GENERATE),
    ],
)
async def test_calls_of_the_service_need_a_token_of_their_scope(
    guarded: Service, method: str, kind: str, scope: Scope | None
) -> None:
    refused = []
    for metadata in ((), bearer("caller"), bearer("operator")):
        # A client that still writes when it is refused may cancel its call.
        sent = iter(()) if kind == "stream_stream" else b""
        call = getattr(guarded.channel, kind)(method)(sent, metadata=metadata)
        with contextlib.suppress(grpc.RpcError):
            _ = [one async for one in call] if kind.endswith("stream") else await call
        refused.append(code if (code := await call.code()) in (UNAUTHENTICATED, DENIED) else None)
    expected = {
        None: [None, None, None],
        Scope.GENERATE: [UNAUTHENTICATED, None, DENIED],
        Scope.ADMIN: [UNAUTHENTICATED, DENIED, None],
    }
    assert refused == expected[scope]
    assert guarded.engine.queue_depth == guarded.engine.slots_in_use == 0


async def test_queue_is_shared_among_token_names_or_else_peers(
    guarded: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = noted_specs(guarded, monkeypatch)
    for token in ("caller", "good"):
        await guarded.generation.Generate(request("a"), metadata=bearer(token))
    assert [spec.client_id for spec in submitted] == ["web", "127.0.0.1"], "where it has no name"


async def test_log_line_names_the_token_and_never_shows_it(
    guarded: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    generate = guarded.generation.Generate
    await generate(request("a"), metadata=bearer("caller"))
    denied = (*bearer("operator"), ("x-request-id", "mine-1"))
    error = await failure(generate(request("a"), metadata=denied))
    assert trailers(error)["x-request-id"] == "mine-1"
    await failure(generate(request("a"), metadata=bearer("wrong")))
    well, denied_line, refused = fields_of(caplog)
    assert (well["code"], well["caller"]) == ("OK", "web")
    assert (denied_line["id"], denied_line["caller"]) == ("mine-1", "op")
    assert (denied_line["code"], denied_line["reason"]) == ("PERMISSION_DENIED", "SCOPE_MISSING")
    assert (refused["code"], refused["reason"]) == ("UNAUTHENTICATED", "NO_VALID_TOKEN")
    assert refused["peer"].startswith("ipv4:127.0.0.1:") and "caller" not in refused
    assert "peer" not in well
    for token in ("good", "caller", "operator", "wrong"):
        assert f"Bearer {token}" not in caplog.text


async def test_refused_calls_are_counted_by_known_methods_only(guarded: Service) -> None:
    await failure(guarded.generate("a"))
    await failure(guarded.channel.unary_unary("/seqserve.v1.GenerationService/Made-up")(b""))
    labels = {"method": "GenerationService.Generate", "code": "UNAUTHENTICATED", "model": ""}
    assert await guarded.value("requests_total", **labels) == 1
    series = (await guarded.scraped())["seqserve_requests"]
    assert series == {frozenset({"method", "code", "model", "version"})}
