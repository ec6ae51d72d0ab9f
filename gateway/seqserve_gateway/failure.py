"""Why a request gets no answer, and the shapes in which forms write it.

Source: RFC 9457, "Problem Details for HTTP APIs", section 3; RFC 9110, sections 10.2.3 and 15.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from seqserve.errors import CallError, InvalidArgument, Unreachable

_log = logging.getLogger(__name__)
CLIENT_GONE = 499
"""Status of a request whose client went away; by the convention of nginx, for metrics alone."""
_STATUS = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": CLIENT_GONE,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {CLIENT_GONE: "Client Gone"}
_RETRY_AFTER_S = 1.0
"""For a refusal that comes without advice."""


@dataclass(slots=True, eq=False)
class Failure(Exception):
    """A request gets no answer; a form writes it in its own shape."""

    code: str
    """Name of the gRPC status, such as ``"INVALID_ARGUMENT"``."""
    details: str
    """The error, for people."""
    status: int = 0
    """Status of HTTP; 0 for the one that belongs to ``code``."""
    field: str = ""
    """The wrong field of the request; empty if no field is wrong."""
    reason: str = ""
    """Why, for programs, such as ``"QUEUE_FULL"``; empty where the code says it all."""
    retry_after_s: float | None = None
    """Seconds after which to retry; None where a retry does not help."""

    def __post_init__(self) -> None:
        # A quoted request may contain a lone surrogate, which cannot be encoded in an answer.
        self.details, self.field = writable(self.details), writable(self.field)
        self.status = self.status or _STATUS.get(self.code, 500)
        if self.retry_after_s is None and self.status in (429, 503):
            self.retry_after_s = _RETRY_AFTER_S

    @classmethod
    def of(cls, error: CallError) -> Self:
        """Returns the failure for an error of a call to the server."""
        # Do not reveal the address of the server; the command reports the outage.
        is_away = isinstance(error, Unreachable)
        details = "the server behind the gateway cannot be reached" if is_away else error.details
        # gRPC uses one status for a message that is too large and for a full queue.
        is_wrong = isinstance(error, InvalidArgument)
        return cls(
            "INVALID_ARGUMENT" if is_wrong else error.code,
            details,
            field=error.field,
            reason=error.reason,
            retry_after_s=error.retry_after_s,
        )

    def named_by(self, names: Mapping[str, str]) -> Failure:
        """Returns the failure with a form's name of the field, if the form has one."""
        if self.field not in names:
            return self
        known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        details = re.sub(known, lambda match: names[match[0]], self.details)
        name = names[self.field]
        return refusal(name, details.removeprefix(f"{name}: "))

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to the status, whatever the shape of the body.

        ``Retry-After`` counts whole seconds, so it is rounded up.
        """
        if self.retry_after_s is not None:
            return {"Retry-After": str(math.ceil(self.retry_after_s))}
        # What is left of a late body would hold its connection.
        others = {401: {"WWW-Authenticate": "Bearer"}, 408: {"Connection": "close"}}
        return others.get(self.status, {})

    def text(self, request_id: str) -> str:
        """Returns the JSON of ``application/problem+json``."""
        members: dict[str, object] = {
            "type": "about:blank",
            "title": _PHRASES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.details,
            "code": self.code,
            "request_id": request_id,
        }
        members |= {name: value for name in ("reason", "field") if (value := getattr(self, name))}
        if self.retry_after_s is not None:
            members["retry_after_s"] = self.retry_after_s
        if self.status == 404:
            # Of a model, or of a path that only OpenAI has; its SDKs show no other member.
            members["error"] = {"message": self.details, "code": "not_found"}
        return compact(members)


_FAULT = "a fault of the gateway; its log has the id of the request"


def failure_of(error: Exception, request_id: str) -> Failure:
    """Returns the failure for any error of a request; one of the program goes to the log."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, ClientDisconnect):
        return GONE
    if isinstance(error, CallError):
        return Failure.of(error)
    if isinstance(error, TimeoutError):
        return Failure("DEADLINE_EXCEEDED", "the request was not finished within its deadline")
    _log.exception("request %s failed", request_id)
    return Failure("INTERNAL", _FAULT)


def refusal(name: str, reason: str) -> Failure:
    """Returns the failure of a wrong field."""
    return Failure("INVALID_ARGUMENT", f"{name}: {reason}", field=name)


def names_of(source: str, target: str) -> dict[str, str]:
    """Returns a form's names of both languages, for :meth:`Failure.named_by`."""
    names = {"source_language": source, "target_language": target}
    return names | {f"options.{field}": name for field, name in names.items()}


def writable(text: str) -> str:
    """Returns a text with a question mark for each half of a pair of surrogates, which JSON can
    write, and UTF-8 cannot."""
    return text.encode(errors="replace").decode()


def compact(facts: Mapping[str, Any]) -> str:
    """Writes JSON in one line without spaces, for answers and events."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))


def problem(failure: Failure, request_id: str) -> Response:
    """Writes a failure as ``application/problem+json``."""
    text = failure.text(request_id)
    return Response(text, failure.status, media_type="application/problem+json")


def reason_as(
    member: str, key: str, statuses: Mapping[str, int] | None = None
) -> Callable[[Failure, str], Response]:
    """Returns a function that writes a failure as translation services do: one member of JSON.

    Args:
        key: Where their clients send a token.
        statuses: Statuses of theirs, by the reason of a failure.
    """

    def write(failure: Failure, request_id: str) -> Response:
        # Their clients know 403 for every key that is not good enough.
        if failure.status == 401:
            return JSONResponse({member: f"send a valid token of the server as {key}"}, 403)
        status = (statuses or {}).get(failure.reason, failure.status)
        return JSONResponse({member: failure.details}, status)

    return write


GONE = Failure("CANCELLED", "the client went away")
