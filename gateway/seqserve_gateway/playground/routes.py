"""The page, the models of the server, and answers as they are generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from seqserve.errors import CallError
from seqserve.output import json_line
from seqserve_gateway.admission import Admission
from seqserve_gateway.app import app_of
from seqserve_gateway.bodies import Bodies
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure
from seqserve_gateway.form import Endpoint, Form, Gateway
from seqserve_gateway.playground.answering import failure_of, lines_of
from seqserve_gateway.playground.question import question_of
from seqserve_gateway.streamed import Streamed
from seqserve_gateway.upstream import Upstream, UpstreamSettings

MAX_BYTES = 256 * 1024
"""Longest body of a request; the server has limits of its own for texts."""
PAGE = Path(__file__).parent / "page"
_STATUS_OF_OUTAGE = 502


async def _index(request: Request) -> Response:
    return FileResponse(PAGE / "index.html")


def gateway_of(settings: UpstreamSettings, admission: Admission | None = None) -> Gateway:
    """Makes what the page needs of the server, within bounds for a few readers.

    Args:
        settings: Of the client that calls the server.
        admission: Bounds of the calls; by default those of :class:`Admission`.

    Raises:
        OptionError: A setting is wrong, as for the client.
    """
    return Gateway(
        upstream=Upstream(settings),
        admission=admission or Admission(),
        bodies=Bodies(MAX_BYTES),
    )


def page_of(gateway: Gateway, allowed_hosts: Sequence[str] = ()) -> Starlette:
    """Makes the application of the page.

    Args:
        gateway: The server and the limits.
        allowed_hosts: Names by which browsers may ask for the page, beside localhost and addresses.
    """
    form = _form_of(gateway.upstream.settings)
    files = [Route("/", _index), Mount("/page", StaticFiles(directory=PAGE))]
    return app_of(gateway, [form], routes=files, allowed_hosts=allowed_hosts)


def _form_of(settings: UpstreamSettings) -> Form:
    """Makes the form in which the page asks; the code to copy names the settings."""

    async def models(call: Call) -> Response:
        """Lists the models; 502 and the reason if the server does not."""
        try:
            models = await call.client.models(timeout_s=call.left_s)
        except CallError as error:
            return _json({"error": failure_of(error)}, _STATUS_OF_OUTAGE)
        return _json({"target": settings.target, "models": [asdict(each) for each in models]})

    async def generate(call: Call) -> Response:
        """Answers as ``lines_of`` says."""
        call.check_json()
        question = question_of(call.body)
        return Streamed(lines_of(call.client, settings, question), "application/x-ndjson")

    return Form(
        name="playground",
        endpoints=[
            Endpoint(path="/api/models", answer=models, methods=["GET"]),
            Endpoint(path="/api/generate", answer=generate),
        ],
        error=_error,
    )


def _error(failure: Failure, request_id: str) -> Response:
    facts = {"code": failure.code, "details": failure.details, "advice": ""}
    return _json({"error": facts}, failure.status)


def _json(facts: dict[str, Any], status: int = 200) -> Response:
    return Response(json_line(facts), status, media_type="application/json")
