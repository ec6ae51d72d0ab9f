"""Answers a question with lines of JSON.

The first line has the ``call`` as code to copy. Each piece of text is a line with ``piece``; the
last line has the ``result`` or an ``error``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from seqserve import AsyncClient
from seqserve.command.advice import advice_on
from seqserve.errors import CallError, FailedPrecondition
from seqserve.output import json_line
from seqserve.results import Piece
from seqserve_gateway.playground.call_code import call_code
from seqserve_gateway.playground.question import Question
from seqserve_gateway.upstream import UpstreamSettings


async def lines_of(
    client: AsyncClient, settings: UpstreamSettings, question: Question
) -> AsyncGenerator[str, None]:
    """Yields the lines; closing the generator cancels the call."""
    try:
        yield _line({"call": call_code(settings, question)})
        async with aclosing(_pieces(client, question)) as pieces:
            async for piece in pieces:
                if piece.result is None:
                    yield _line({"piece": piece.text})
                else:
                    yield _line({"result": asdict(piece.result)})
    except CallError as error:
        yield _line({"error": failure_of(error)})


def failure_of(error: CallError) -> dict[str, Any]:
    """Describes an error of a call, and what to do."""
    return {
        "code": error.code,
        "details": error.details,
        "field": error.field,
        "retry_after_s": error.retry_after_s,
        "advice": advice_on(error),
    }


async def _pieces(client: AsyncClient, question: Question) -> AsyncGenerator[Piece, None]:
    """Asks for what the page shows beside texts: scores, and attention if the model has it."""
    for attends in (True, False):
        options = question.options.copy()
        options["return_token_scores"], options["return_attention"] = True, attends
        try:
            async with aclosing(client.stream(question.source, **options)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except FailedPrecondition as error:
            if not attends or "scorer" not in error.details:
                raise


def _line(facts: dict[str, Any]) -> str:
    return json_line(facts) + "\n"
