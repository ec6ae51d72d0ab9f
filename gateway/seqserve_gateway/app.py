"""The application: forms, health, and what every request passes.

A **form** is a family of routes, such as ``/v1/...`` or those of another service. To add one, write
a module with a :class:`~seqserve_gateway.form.Form`, and list it in
:mod:`seqserve_gateway.forms`::

    FORM = Form(
        name="shout",
        endpoints=[Endpoint(path="/shout", answer=shout)],
        error=lambda failure, request_id: JSONResponse({"error": failure.details}, failure.status),
    )

    async def shout(call: Call) -> Response:
        texts = json.loads(call.body)["q"]                       # bounded, and read to its end
        call.token = call.request.query_params.get("api_key")    # unless it is a bearer token
        results = await call.generate_all(texts, beam_size=4)    # windowed, low priority, in order
        return JSONResponse([result.text for result in results])

- **The server** is ``call.client``, a :class:`seqserve.AsyncClient`; or ``call.message`` and
  ``call.messages`` for messages of ``seqserve.v1`` as they are. Pass ``timeout_s=call.left_s``.
- **Bodies** are bytes; ``call.check_json()`` refuses one that is not said to be JSON.
- **The caller's token** is taken from ``Authorization: Bearer``; a form that carries it elsewhere
  sets ``call.token`` before its first call. It reaches the server with every call of the request.
- **Cancellation**: if the client goes away, or the deadline passes, the endpoint is cancelled, and
  with it the calls that it awaits. A generator of the client that is left needs ``aclosing``.
- **Arrays** go through ``call.generate_all``.
- **Errors**: raise :class:`~seqserve_gateway.failure.Failure`, or let a
  :class:`~seqserve.CallError` pass; ``Form.error`` writes both, and those of limits, in the form's
  shape. ``x-request-id``, ``Retry-After`` and ``WWW-Authenticate`` are added.

The deadline, the limits on bodies and calls, metrics and ids are the same for all forms.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from seqserve.metadata import REQUEST_ID
from seqserve_gateway import reference
from seqserve_gateway.call import TIMEOUT_HEADER, request_id_of
from seqserve_gateway.failure import Failure, problem
from seqserve_gateway.form import Form, Gateway, routes_of
from seqserve_gateway.guard import Guard
from seqserve_gateway.probes import probes_of


def app_of(
    gateway: Gateway,
    forms: Sequence[Form],
    *,
    routes: Sequence[BaseRoute] = (),
    allowed_hosts: Sequence[str] | None = None,
    cors_origins: Sequence[str] = (),
) -> Starlette:
    """Makes the application.

    Args:
        gateway: The server behind it and the limits; closed when the application ends.
        forms: The forms that it speaks.
        routes: Routes beside them, such as those of a page.
        allowed_hosts: Names by which it is called, beside localhost and addresses; any if None.
        cors_origins: Origins whose pages may call it, such as ``https://example.com``; ``*`` for
            all.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        yield
        await gateway.upstream.close()

    middleware = [Middleware(Guard, allowed_hosts=allowed_hosts, origins=cors_origins)]
    if cors_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", REQUEST_ID, TIMEOUT_HEADER, "traceparent"],
            expose_headers=[REQUEST_ID, "retry-after"],
        )
        middleware.insert(0, cors)
    return Starlette(
        routes=[
            *probes_of(gateway),
            *(route for form in forms for route in routes_of(form, gateway)),
            *reference.routes_of(forms, gateway.max_timeout_s),
            *routes,
            # For who opens the address in a browser; a page of ``routes`` goes first.
            Route("/", _to_docs),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _no_route},
        lifespan=lifespan,
    )


async def _to_docs(request: Request) -> Response:
    return RedirectResponse("docs")


async def _no_route(request: Request, error: Exception) -> Response:
    """Answers a path that is not there, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    code = "NOT_FOUND" if error.status_code == 404 else "UNIMPLEMENTED"
    reason = f"{request.method} {request.url.path}: {error.detail}; /docs lists what there is"
    failure = Failure(code, reason, error.status_code)
    request_id = request_id_of(request)
    response = problem(failure, request_id)
    response.headers.update({**(error.headers or {}), REQUEST_ID: request_id})
    return response
