"""Reads what the page asks for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from seqserve.decoding import GenerateOptions

MAX_BYTES = 256 * 1024
"""Longest body of a request; the server has limits of its own for texts."""


class Malformed(Exception):
    """A request of the page is not one; the message says what is wrong."""

    def __init__(self, reason: str, status: int = 400) -> None:
        """Stores the reason and the status of HTTP."""
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A source and the keywords of the call, which the client checks."""

    source: str
    options: GenerateOptions


async def question_of(request: Request) -> Question:
    """Reads a request.

    Raises:
        Malformed: It is too large, or not JSON, or not a question.
    """
    # Pages of other sites can send any other type without being asked for leave (CORS).
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Malformed("the Content-Type is not application/json", 415)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise Malformed(f"the request is longer than {MAX_BYTES:,} bytes", 413)
    try:
        facts = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("the body is not JSON") from None
    if not isinstance(facts, dict) or facts.keys() - {"source", "options"}:
        raise Malformed("the body is not an object with source and options")
    source, options = facts.get("source"), facts.get("options", {})
    if not isinstance(source, str):
        raise Malformed("source: is not a text")
    if not isinstance(options, dict):
        raise Malformed("options: is not an object")
    if unknown := options.keys() - GenerateOptions.__annotations__:
        raise Malformed(f"options: there is no option {min(unknown)!r}")
    return Question(source=source, options=cast(GenerateOptions, options))
