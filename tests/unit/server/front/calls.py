"""Requests to a server, and what comes of its calls."""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from tests.unit.server.front.echo import PATIENCE_S

from seqserve.v1 import generation_pb2


def request(source: str, *, model: str = "", version: int = 0, **options: Any) -> Any:
    return generation_pb2.GenerateRequest(
        model=model,
        version=version,
        source=source,
        options=generation_pb2.GenerationOptions(**options) if options else None,
    )


def batch(*sources: str, **options: Any) -> generation_pb2.GenerateBatchRequest:
    sent = generation_pb2.GenerationOptions(**options)
    return generation_pb2.GenerateBatchRequest(sources=sources, options=sent)


def bulk(id_: int, source: str, **said: Any) -> generation_pb2.GenerateBulkRequest:
    return generation_pb2.GenerateBulkRequest(id=id_, request=request(source, **said))


async def ended(call: Any) -> dict[int, Any]:
    """Reads a bulk call to its end; gives the outcomes by their ids, in the order they came."""
    async with asyncio.timeout(PATIENCE_S):
        responses = [response async for response in call]
    assert len({response.id for response in responses}) == len(responses)
    return {response.id: response.outcome for response in responses}


def texts(outcomes: Mapping[int, Any]) -> dict[int, str]:
    return {id_: one.response.hypotheses[0].text for id_, one in outcomes.items()}


async def text_of(stream: Any) -> str:
    return "".join([message.piece.text async for message in stream])


async def awaited(call: Any) -> Any:
    return await call


async def failure(call: Any) -> Any:
    """Awaits a call that must fail, and returns its error."""
    try:
        await asyncio.wait_for(_to_its_end(call), PATIENCE_S)
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call succeeded")


async def _to_its_end(call: Any) -> None:
    if hasattr(call, "__aiter__"):
        async for _ in call:
            pass
    else:
        await call


def trailers(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """The trailing metadata of a failed call."""
    metadata: Any = error.trailing_metadata() or ()
    return dict(metadata)


def details(error: grpc.aio.AioRpcError, kind: type[Message]) -> Any:
    """The attached detail of a kind; None if there is none."""
    status = Status.FromString(trailers(error)["grpc-status-details-bin"])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    for detail in status.details:
        found = kind()
        if detail.Unpack(found):
            return found
    return None


async def invalid(call: Any) -> tuple[str, str]:
    """Awaits a call that must be refused; gives the field that is wrong, and why."""
    error = await failure(call)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    [violation] = details(error, BadRequest).field_violations
    return violation.field, violation.description


def line_of(method: str, **more: Any) -> dict[str, Any]:
    """The line in the log of a call that is answered, without what differs each time."""
    return {"method": method, "code": "OK", "model": "echo", "version": 2, **more}
