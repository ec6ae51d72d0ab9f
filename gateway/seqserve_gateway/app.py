"""The application: its forms, its probes, and the checks that every request passes.

A **form** is a family of routes, such as ``/v1/...`` or the API of another service. To add one,
write a module with a :class:`~seqserve_gateway.endpoint.Form`, and list it in :data:`FORMS`::

    FORM = Form(
        name="shout",
        endpoints=[Endpoint(path="/shout", answer=shout)],
        error=lambda failure, request_id: JSONResponse({"error": failure.details}, failure.status),
    )

    async def shout(call: Call) -> Response:
        texts = call.json()["q"]                                 # bounded, and read to its end
        call.token = call.request.query_params.get("api_key")    # unless it is a bearer token
        read = lambda response: response.hypotheses[0].text      # keeps no more of each response
        results = await call.generate_all(texts, read, beam_size=4)  # windowed, low priority
        return JSONResponse(results)

An endpoint gets a :class:`~seqserve_gateway.call.Call`: the server, bounded bodies, readers of
documents, windows for arrays, recent listings. A form that carries the caller's token elsewhere
than in ``Authorization: Bearer`` sets ``call.token`` before its first call. State that outlives a
request belongs to ``call.request.app.state``. If the client disconnects, or the deadline passes,
the endpoint is cancelled; a generator of the client that is left needs ``aclosing``.

The deadline, the limits on bodies and calls, metrics and ids are the same for all forms.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seqserve import AsyncClient
from seqserve.errors import CallError, DeadlineExceeded, Unavailable
from seqserve.metadata import REQUEST_ID
from seqserve_gateway import completions, deepl, libretranslate, openapi, v1
from seqserve_gateway.call import request_id_of
from seqserve_gateway.documents import Documents
from seqserve_gateway.endpoint import Form, Gateway, routes_of
from seqserve_gateway.failure import Failure, problem
from seqserve_gateway.proxies import Proxied, PublicAddress, address_in

FORMS: Sequence[Form] = [v1.FORM, completions.FORM, libretranslate.FORM, deepl.FORM]
"""The forms of ``seqserve gateway``."""

_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::\d+)?")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Neither texts in a cache nor scripts of the version before.
    "Cache-Control": "no-store",
}


_OTHER_SITE = """\
pages of other sites may call only if `seqserve gateway --cors-origin` names their origin, such as
https://example.com
"""
_TIMEOUT_S = 2.0
_READY_S = 1.0


def app_of(
    gateway: Gateway,
    forms: Sequence[Form],
    *,
    routes: Sequence[BaseRoute] = (),
    allowed_hosts: Sequence[str] | None = None,
    cors_origins: Sequence[str] = (),
    trusted_proxies: Sequence[str] = (),
    public: PublicAddress | None = None,
) -> Starlette:
    """Makes the application.

    Args:
        gateway: The server and the limits; closed when the application ends.
        allowed_hosts: Names by which it is called, in addition to localhost and addresses; any if
            None.
        cors_origins: Origins whose pages may call it, such as ``https://example.com``; ``*`` for
            all.
        trusted_proxies: Addresses and networks of proxies that name its callers and its address.
        public: The address that its links have; by default, that of each request.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        yield
        await gateway.upstream.close()
        app.state.documents.close()

    middleware = [
        # The guard checks what the sender calls the gateway, not what proxies say.
        Middleware(Guard, allowed_hosts=allowed_hosts, origins=cors_origins),
        Middleware(Proxied, trusted=trusted_proxies, public=public),
    ]
    if cors_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=cors_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            # SDKs send headers of their own.
            allow_headers=["*"],
            # A page of the internet asks so before it calls an address of the reader's network.
            allow_private_network=True,
            expose_headers=[
                *(REQUEST_ID, "retry-after"),
                *("x-translation-warnings", "x-translation-report"),
            ],
        )
        middleware.insert(0, cors)
    app = Starlette(
        routes=[
            *_probes_of(gateway),
            *(route for form in forms for route in routes_of(form, gateway)),
            *openapi.routes_of(forms, gateway.max_timeout_s),
            *routes,
            # Landing page, unless ``routes`` has one.
            Route("/", _to_docs),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: _no_route},
        lifespan=lifespan,
    )
    app.state.documents, app.state.glossaries = Documents(gateway.folder), gateway.glossaries
    return app


async def _to_docs(request: Request) -> Response:
    return RedirectResponse(f"{root}/docs" if (root := request.scope["root_path"]) else "docs")


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "NOT_FOUND" if error.status_code == 404 else "UNIMPLEMENTED"
    reason = f"{request.method} {request.url.path}: {error.detail}; /docs lists all paths"
    failure = Failure(code, reason, error.status_code)
    request_id = request_id_of(request)
    response = problem(failure, request_id)
    response.headers.update({**(error.headers or {}), REQUEST_ID: request_id})
    return response


class Guard:
    """Refuses requests for unknown hosts or from other sites; adds headers that confine pages.

    A page of another site could give its own name the address 127.0.0.1 and then read answers from
    here (DNS rebinding). Its requests carry that name as host, so only known names are answered.
    IP addresses cannot be rebound, so all are allowed. So are requests without a host, such as
    checks of balancers, because browsers send one. Scripts and pictures of another site may not
    send requests, which would take the places of calls, unless the origin of the site is named:
    browsers say where a request comes from, and only links may come from elsewhere. The forms of
    another site may not, since a form could create a glossary.

    Sources: Jackson et al. 2007, "Protecting Browsers from DNS Rebinding Attacks", section 5.2;
    W3C, "Fetch Metadata Request Headers".
    """

    def __init__(
        self, app: ASGIApp, allowed_hosts: Iterable[str] | None, origins: Collection[str] = ()
    ) -> None:
        self._app, self._origins = app, origins
        self._names = None
        if allowed_hosts is not None:
            self._names = {"localhost", *(name.lower() for name in allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0] if hosts else ""
        app = self._app if not hosts or self._is_known(host) else _refusal(host)
        if len(hosts) > 1:
            # RFC 9112, section 3.2. A proxy in front may believe another one of them.
            app = PlainTextResponse("a request names one host\n", 400)
        is_welcome = "*" in self._origins or headers.get("origin") in self._origins
        if _is_of_another_site(scope["method"], headers) and not is_welcome:
            app = PlainTextResponse(_OTHER_SITE, 403)
        await app(scope, receive, confined)

    def _is_known(self, host: str) -> bool:
        if self._names is None:
            return True
        parts = _HOST.fullmatch(host)
        name = (parts[1] or parts[2]).lower() if parts else ""
        return name in self._names or address_in(name) is not None


def _is_of_another_site(method: str, headers: Headers) -> bool:
    is_own = headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    is_link = headers.get("sec-fetch-mode") == "navigate" and method in ("GET", "HEAD")
    return not is_own and not is_link


def _refusal(host: str) -> ASGIApp:
    advice = "ask for localhost, or start it with --allowed-host"
    return PlainTextResponse(f"{host!r} is not a host of this gateway: {advice}\n", 421)


class Readiness:
    """Whether the server answers; asks it at most once a second."""

    def __init__(self, client: AsyncClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._lock = asyncio.Lock()
        self._is_ready, self._until_s = False, -1.0

    async def check(self) -> bool:
        """Returns what is known, or asks the server."""
        async with self._lock:
            if self._clock() >= self._until_s:
                self._is_ready = await self._answers()
                self._until_s = self._clock() + _READY_S
        return self._is_ready

    async def _answers(self) -> bool:
        try:
            await self._client.models(timeout_s=_TIMEOUT_S)
        except CallError as error:
            # That it refuses a call without a token is an answer too.
            return not isinstance(error, Unavailable | DeadlineExceeded)
        return True


def _probes_of(gateway: Gateway) -> list[Route]:
    # None of them takes a place among the calls.
    readiness = Readiness(gateway.upstream.client)
    gateway.metrics.in_progress.set_function(lambda: gateway.admission.in_progress)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readyz(request: Request) -> Response:
        if gateway.admission.is_ready and await readiness.check():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", 503)

    async def health(request: Request) -> Response:
        # As LibreTranslate has it.
        status = (await readyz(request)).status_code
        return JSONResponse({"status": "ok" if status == 200 else "unavailable"}, status)

    async def metrics(request: Request) -> Response:
        media_type = "text/plain; version=0.0.4; charset=utf-8"
        return Response(gateway.metrics.text(), media_type=media_type)

    probes = {"/healthz": healthz, "/readyz": readyz, "/health": health, "/metrics": metrics}
    return [Route(path, answer) for path, answer in probes.items()]
