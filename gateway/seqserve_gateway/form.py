"""A form, which is one HTTP API: its endpoints, and what each of their requests goes through.

A request is read, admitted, given a deadline, answered, and counted, in this order. If its client
goes away meanwhile, the endpoint is cancelled, and so are its calls on the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from seqserve.errors import CallError
from seqserve.metadata import REQUEST_ID
from seqserve_gateway.admission import Admission
from seqserve_gateway.bodies import Bodies
from seqserve_gateway.call import Call, request_id_of, timeout_of
from seqserve_gateway.failure import Failure, problem
from seqserve_gateway.metrics import Metrics
from seqserve_gateway.upstream import Upstream

_log = logging.getLogger(__name__)
_FAULT = "a fault of the gateway; its log has the id of the request"
_GONE = Failure("CANCELLED", "the client went away")
_READ_S = 1.0
"""Time beyond the deadline that a client has to read the end of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A path and the function that answers it.

    The function may raise :class:`~seqserve_gateway.failure.Failure`, or any
    :class:`~seqserve.CallError` of a call that it makes; the form writes both.
    """

    path: str
    """As starlette's routes have it: ``/v1/models/{model}``."""
    answer: Callable[[Call], Awaitable[Response]]
    methods: Sequence[str] = ("POST",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One API: endpoints that write errors in one shape."""

    name: str
    """Of the form, in metrics and in OpenAPI."""
    endpoints: Sequence[Endpoint]
    error: Callable[[Failure, str], Response] = problem
    """Writes a failure, for a request with this id, in the shape of the form. Headers such as
    ``Retry-After`` are added to what it returns."""
    openapi: dict[str, Any] = field(default_factory=dict)
    """Members ``paths`` and ``components`` for ``/openapi.json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What all forms share: the server behind them, limits and metrics."""

    upstream: Upstream
    admission: Admission
    bodies: Bodies
    metrics: Metrics = field(default_factory=Metrics)
    max_timeout_s: float = 300.0
    """Longest deadline that a caller may ask for."""


def routes_of(form: Form, gateway: Gateway) -> list[Route]:
    """Makes the routes of a form."""
    return [
        Route(each.path, _EndpointApp(form, each, gateway), methods=list(each.methods))
        for each in form.endpoints
    ]


class _EndpointApp:
    """One endpoint as an application of ASGI, with what a request goes through before and after."""

    def __init__(self, form: Form, endpoint: Endpoint, gateway: Gateway) -> None:
        self._form, self._endpoint, self._gateway = form, endpoint, gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request_id = request_id_of(request)
        begun_s, code, has_begun = time.monotonic(), "CANCELLED", False

        async def identified(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._answer(request, request_id, identified)
            code = "OK"
        except Exception as error:
            failure = _failure_of(error, request_id)
            code = failure.code
            if failure is not _GONE and not has_begun:
                response = self._form.error(failure, request_id)
                response.headers.update(failure.headers)
                await response(scope, receive, identified)
        finally:
            duration_s = time.monotonic() - begun_s
            self._gateway.metrics.ended(self._form.name, self._endpoint.path, code, duration_s)

    async def _answer(self, request: Request, request_id: str, send: Send) -> None:
        gateway = self._gateway
        timeout_s = timeout_of(request, gateway.upstream.settings.timeout_s, gateway.max_timeout_s)
        async with gateway.bodies.read(request) as body:
            with gateway.admission.call():
                # The calls report the deadline themselves; this ends what a slow reader holds.
                async with asyncio.timeout(timeout_s + _READ_S), _until_gone(request.receive):
                    call = Call(request, body, gateway.upstream, request_id, timeout_s)
                    response = await self._endpoint.answer(call)
                    await response(request.scope, request.receive, send)


@asynccontextmanager
async def _until_gone(receive: Receive) -> AsyncGenerator[None, None]:
    """Cancels the block when the client goes away.

    Raises:
        ClientDisconnect: It did.
    """
    task = asyncio.current_task()
    assert task is not None
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if is_gone and task.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        watcher.cancel()


def _failure_of(error: Exception, request_id: str) -> Failure:
    if isinstance(error, Failure):
        return error
    if isinstance(error, ClientDisconnect):
        return _GONE
    if isinstance(error, CallError):
        return Failure.of(error)
    if isinstance(error, TimeoutError):
        return Failure("DEADLINE_EXCEEDED", "the request was not finished within its deadline")
    _log.exception("request %s failed", request_id)
    return Failure("INTERNAL", _FAULT)
