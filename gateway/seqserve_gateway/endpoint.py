"""One HTTP API, called a form: its endpoints, and the way of each of their requests.

A request is read, admitted, given a deadline, answered and counted, in this order. If its client
disconnects meanwhile, the endpoint is cancelled, and with it its calls on the server.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import prometheus_client as prometheus
from prometheus_client import ProcessCollector, multiprocess, values
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from seqserve.errors import CallError
from seqserve.metadata import REQUEST_ID
from seqserve_gateway.admission import Admission, Bodies
from seqserve_gateway.call import Call, request_id_of, timeout_of
from seqserve_gateway.failure import GONE, Failure, failure_of, problem
from seqserve_gateway.processes import FamilyCollector
from seqserve_gateway.translation import Translated
from seqserve_gateway.upstream import Upstream

_READ_S = 1.0
"""Time beyond the deadline that a client has to read the end of its answer."""
_BUCKETS = [5e-4 * 1.5**power for power in range(29)]
"""From 0.5 ms to 43 s, geometric like the buckets of the server."""


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
    goes_on: bool = False
    """Whether it works on after its answer, which is why it may take the longest time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One API: endpoints that write errors in one shape."""

    name: str
    """Name of the form in metrics and in OpenAPI."""
    endpoints: Sequence[Endpoint]
    error: Callable[[Failure, str], Response] = problem
    """Writes a failure, for a request with this id, in the shape of the form. Headers such as
    ``Retry-After`` are added to what it returns."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Its names of fields, for errors of the server about fields of ``seqserve.v1``."""
    openapi: dict[str, Any] = field(default_factory=dict)
    """Members ``paths`` and ``components`` for ``/openapi.json``."""


class Metrics:
    """The metrics of a process, and their sums over all processes.

    Names begin with ``seqserve_http``, so that a sum over the calls of the servers
    (``seqserve_requests_total``) does not count the calls of a gateway a second time.
    """

    def __init__(self, number: int = 0, folder: Path | None = None) -> None:
        """Registers all metrics, so that each name is there from the first scrape on.

        Args:
            number: Number of this process; its successor continues the counts.
            folder: Where all processes count; None if there is one.
        """
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = self._shown = prometheus.CollectorRegistry()
        if folder is None:
            ProcessCollector(registry=self.registry)
        else:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
            values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
            self._shown = prometheus.CollectorRegistry()
            multiprocess.MultiProcessCollector(self._shown)  # type: ignore[no-untyped-call]
            self._shown.register(FamilyCollector())
        self._requests = prometheus.Counter(
            "seqserve_http_requests_total",
            "Requests by outcome, as the name of a gRPC status.",
            ["form", "path", "code"],
            registry=self.registry,
        )
        self._durations = prometheus.Histogram(
            "seqserve_http_request_duration_seconds",
            "Requests that got an answer, from their headers to its end.",
            ["form", "path"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_progress = prometheus.Gauge(
            "seqserve_http_requests_in_progress",
            "Requests whose body has arrived and that have not ended.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.connections = prometheus.Gauge(
            "seqserve_http_connections",
            "Open connections.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    def ended(self, form: str, path: str, code: str, duration_s: float) -> None:
        """Counts a request that has ended; refusals come at once, so only answers are timed."""
        self._requests.labels(form, path, code).inc()
        if code == "OK":
            self._durations.labels(form, path).observe(duration_s)

    def publish(self) -> None:
        """Lets the other processes show what the functions of the gauges return here."""
        for gauge in (self.in_progress, self.connections):
            gauge.set(next(iter(gauge.collect())).samples[0].value)

    def text(self) -> bytes:
        """Returns the metrics of all processes."""
        self.publish()
        return prometheus.generate_latest(self._shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The server, the limits and the metrics that all forms share."""

    upstream: Upstream
    admission: Admission
    bodies: Bodies
    metrics: Metrics = field(default_factory=Metrics)
    max_timeout_s: float = 300.0
    """Longest deadline that a caller may ask for."""
    folder: Path | None = None
    """State that the processes of the gateway share; None if there is one process."""
    glossaries: Path | None = None
    """Folder of the server's glossaries, in which callers may write; None if they may not."""


class Streamed(Response):
    """Sends each event as it comes, and closes the generator however the response ends.

    There is at least one event. If the call fails after the first, a last event tells the reader,
    and the error is raised once the response is complete.

    Source: HTML Living Standard, section 9.2, "Server-sent events".
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None], failed: Callable[[Failure], str]) -> None:
        """Stores the generator; ``failed`` writes the event of a failure."""
        super().__init__()
        del self.headers["content-length"]
        # A proxy such as nginx would keep events back otherwise.
        self.headers["x-accel-buffering"] = "no"
        self._events, self._failed = events, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response; an error before the first event comes before its headers."""

        async def send_body(text: str, *, more_body: bool = True) -> None:
            message = {"type": "http.response.body", "body": text.encode(), "more_body": more_body}
            await send(message)

        async with aclosing(self._events):
            first = await anext(self._events)
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            await send_body(first)
            failure: CallError | None = None
            try:
                async for event in self._events:
                    await send_body(event)
            except CallError as error:
                failure = error
                await send_body(self._failed(Failure.of(error)))
            await send_body("", more_body=False)
            if failure is not None:
                raise failure


def routes_of(form: Form, gateway: Gateway) -> list[Route]:
    """Makes the routes of a form."""
    return [
        Route(each.path, _EndpointApp(form, each, gateway), methods=list(each.methods))
        for each in form.endpoints
    ]


class _EndpointApp:
    """An endpoint as an ASGI application: admission before it, failures and metrics after it."""

    def __init__(self, form: Form, endpoint: Endpoint, gateway: Gateway) -> None:
        self._form, self._endpoint, self._gateway = form, endpoint, gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request_id = request_id_of(request)
        begun_s, code, has_begun = time.monotonic(), "CANCELLED", False
        names = dict(self._form.names)

        async def identified(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._answer(request, request_id, identified, names)
            code = "OK"
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                if self._gateway.admission.is_open:
                    raise
                # The drain is over.
                error = Failure("UNAVAILABLE", "the gateway is shutting down")
            failure = failure_of(error, request_id).named_by(names)
            code = failure.code
            if failure is not GONE and not has_begun:
                response = self._form.error(failure, request_id)
                response.headers.update(failure.headers)
                await response(scope, receive, identified)
        finally:
            duration_s = time.monotonic() - begun_s
            self._gateway.metrics.ended(self._form.name, self._endpoint.path, code, duration_s)

    async def _answer(
        self, request: Request, request_id: str, send: Send, names: dict[str, str]
    ) -> None:
        gateway = self._gateway
        usual_s = gateway.max_timeout_s if self._endpoint.goes_on else gateway.upstream.timeout_s
        timeout_s = timeout_of(request, usual_s, gateway.max_timeout_s)
        async with gateway.bodies.read(request) as body:
            with gateway.admission.call(body.caller):
                # The calls report the deadline themselves; this ends what a slow reader holds.
                async with asyncio.timeout(timeout_s + _READ_S):
                    call = Call(request, body, gateway.upstream, request_id, timeout_s, names)
                    async with _watch_disconnect(request.receive):
                        response = await self._endpoint.answer(call)
                        await response(request.scope, request.receive, send)
                    if call.afterwards is not None:
                        with gateway.admission.until_closed():
                            await call.afterwards()


@asynccontextmanager
async def _watch_disconnect(receive: Receive) -> AsyncGenerator[None, None]:
    # The block is cancelled when the client disconnects, and ends with ClientDisconnect.
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


def warning_header(results: Sequence[Translated]) -> dict[str, str]:
    """Returns a header with the numbers of the texts, from 0, that have warnings; none if none has.

    Clients of other services may not know further fields of an answer.
    """
    numbers: dict[str, list[str]] = {}
    for number, result in enumerate(results):
        for kind in {warning.partition(":")[0] for warning in result.warnings}:
            numbers.setdefault(kind.replace(" ", "_"), []).append(str(number))
    kinds = [f"{kind}={','.join(each)}" for kind, each in sorted(numbers.items())]
    return {"x-translation-warnings": "; ".join(kinds)} if kinds else {}
