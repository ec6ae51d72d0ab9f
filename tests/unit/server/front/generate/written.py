"""Writes the response to one source from what an engine would have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast
from unittest import mock

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Finished, Timeline
from seqserve_server.contract.request import Priority
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate import answer as answering
from seqserve_server.front.generate.feature import Part
from seqserve_server.front.generate.options import compile_options
from seqserve_server.front.generate.records import Hop, Job, Source
from seqserve_server.front.generate.splitting import Span
from seqserve_server.front.generate.window import Window
from seqserve_server.front.models.loaded_model import ServedModel


class AnsweredCall:
    """Stands for a finished ``EngineCall``."""

    def __init__(
        self,
        answer: Finished,
        timeline: Timeline,
        attention: Finished | ServiceError | None,
        while_fetching: Callable[[], bool],
    ) -> None:
        """``attention`` is the answer with it, or why there is none; None where nobody wants it."""
        self._answer, self.timeline, self._attention = answer, timeline, attention
        self._while_fetching = while_fetching

    async def finished(self, *, retries: bool) -> Finished:
        return self._answer

    def result(self) -> Finished:
        return self._answer

    async def with_attention(self) -> Finished:
        assert self._attention is not None and self._while_fetching()
        if isinstance(self._attention, ServiceError):
            raise self._attention
        return self._attention


def written(
    model: ServedModel,
    text: str,
    tokens: list[int],
    answer: Finished,
    timeline: Timeline | None = None,
    num_targets: int | None = None,
    *,
    kept: Sequence[Span] = (),
    attention: Finished | ServiceError | None = None,
    while_fetching: Callable[[], bool] = lambda: True,
    call: ServerCall | None = None,
    **sent: Any,
) -> generation_pb2.GenerateResponse:
    options = compile_options(generation_pb2.GenerationOptions(**sent), model)
    terms = sent.get("terms", ())
    count = len(terms) if num_targets is None else num_targets
    decoding = replace(options.decoding, terms=((1,),) * count)
    part = Part(Span(0, len(text)), text, text, tokens, decoding, protected=kept, terms=terms)
    source = Source(text, [part], len(tokens), is_divided=False)
    job = Job(
        hop=Hop(model, options),
        sources=[source],
        priority=Priority.NORMAL,
        is_bulk=False,
        call=call or ServerCall(path="", request_id=""),
        window=Window(1),
    )
    finished = AnsweredCall(answer, timeline or Timeline(), attention, while_fetching)
    answered = cast(Any, finished)
    with mock.patch.object(answering, "engine_call", lambda *_, **__: answered):
        return asyncio.run(answering.answer(job, source))
