"""The web application: the page, the models of the server, and answers as they are generated."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from seqserve import AsyncClient
from seqserve.command.json_line import json_line
from seqserve.errors import CallError
from seqserve_playground.admission import Admission, Refused
from seqserve_playground.answering import failure_of, lines_of
from seqserve_playground.guard import Guard
from seqserve_playground.question import Malformed, question_of

PAGE = Path(__file__).parent / "page"
_STATUS_OF_OUTAGE = 502


def app_of(
    settings: Mapping[str, Any],
    allowed_hosts: Sequence[str] = (),
    admission: Admission | None = None,
) -> Starlette:
    """Makes the application.

    Args:
        settings: Arguments of the :class:`~seqserve.AsyncClient` that calls the server.
        allowed_hosts: Names by which browsers may ask for the page, beside localhost and addresses.
        admission: Bounds of the calls; by default those of :class:`Admission`.

    Raises:
        OptionError: A setting is wrong, as for the client.
    """
    client = AsyncClient(**settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        async with client:
            yield

    app = Starlette(
        routes=[
            Route("/", _index),
            Route("/api/models", _models),
            Route("/api/generate", _generate, methods=["POST"]),
            Mount("/page", StaticFiles(directory=PAGE)),
        ],
        middleware=[Middleware(Guard, allowed_hosts=allowed_hosts)],
        exception_handlers={Malformed: _malformed, Refused: _refused},
        lifespan=lifespan,
    )
    app.state.admission = admission or Admission()
    app.state.settings = settings
    app.state.client = client
    return app


async def _index(request: Request) -> Response:
    return FileResponse(PAGE / "index.html")


async def _models(request: Request) -> Response:
    """Lists the models; 502 and the reason if the server does not."""
    with request.app.state.admission.call():
        try:
            models = await request.app.state.client.models()
        except CallError as error:
            return _json({"error": failure_of(error)}, _STATUS_OF_OUTAGE)
    target = request.app.state.settings["target"]
    return _json({"target": target, "models": [asdict(model) for model in models]})


async def _generate(request: Request) -> Response:
    """Answers as ``lines_of`` says; the call is cancelled when its reader goes away."""
    question = await question_of(request)
    state = request.app.state
    return _Admitted(state.admission, lines_of(state.client, state.settings, question))


class _Admitted(StreamingResponse):
    """Lines of JSON that take a place among the calls under way until they end."""

    media_type = "application/x-ndjson"

    def __init__(self, admission: Admission, lines: AsyncGenerator[str, None]) -> None:
        super().__init__(lines)
        self._admission, self._lines = admission, lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._lines):
            with self._admission.call():
                await super().__call__(scope, receive, send)


def _json(facts: Mapping[str, Any], status: int = 200) -> Response:
    return Response(json_line(facts), status, media_type="application/json")


async def _malformed(request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, Malformed) else 400
    failure = {"code": "INVALID_ARGUMENT", "details": str(error), "advice": ""}
    return _json({"error": failure}, status)


async def _refused(request: Request, error: Exception) -> Response:
    failure = {"code": "RESOURCE_EXHAUSTED", "details": str(error), "advice": ""}
    return _json({"error": failure}, 429)
