"""Reads what the page asks for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

from seqserve.arguments import GenerateOptions
from seqserve_gateway.failure import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A source and the keywords of the call, which the client checks."""

    source: str
    options: GenerateOptions


def question_of(body: bytes) -> Question:
    """Reads the body of a request.

    Raises:
        Failure: It is not JSON, or not a question.
    """
    try:
        facts = json.loads(body)
    except (ValueError, RecursionError):
        raise _malformed("the body is not JSON") from None
    if not isinstance(facts, dict) or facts.keys() - {"source", "options"}:
        raise _malformed("the body is not an object with source and options")
    source, options = facts.get("source"), facts.get("options", {})
    if not isinstance(source, str):
        raise _malformed("source: is not a text")
    if not isinstance(options, dict):
        raise _malformed("options: is not an object")
    if unknown := options.keys() - GenerateOptions.__annotations__:
        raise _malformed(f"options: there is no option {min(unknown)!r}")
    return Question(source=source, options=cast(GenerateOptions, options))


def _malformed(reason: str) -> Failure:
    return Failure("INVALID_ARGUMENT", reason)
