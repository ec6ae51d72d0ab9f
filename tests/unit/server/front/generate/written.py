"""Writes the response to one source from what an engine would have answered."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from tests.unit.server.front.generate.asking import compiled, job_of

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Failed, Finished, Timeline
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.generate import answer as answering
from seqserve_server.front.generate.records import Part, Source
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.text.splitting import Span


class AnsweringEngine:
    """Stands for an engine: answers at once, and a request for attention with what it is given."""

    pending = 0

    def __init__(
        self,
        answer: Finished,
        timeline: Timeline,
        attention: Finished | ServiceError | None,
        while_fetching: Callable[[], bool],
    ) -> None:
        """``attention`` is the answer with it, or why there is none; None where nobody wants it."""
        self._answer, self._timeline, self._attention = answer, timeline, attention
        self._while_fetching = while_fetching

    def submit(self, spec: Any, receive: Receive) -> int:
        if spec.answer is None:
            receive(self._answer, self._timeline)
        elif isinstance(self._attention, ServiceError):
            assert self._while_fetching()
            receive(Failed(self._attention), None)
        else:
            assert self._while_fetching()
            receive(self._attention or self._answer, None)
        return 1


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
    options = compiled(model, **sent)
    terms = sent.get("terms", ())
    count = len(terms) if num_targets is None else num_targets
    decoding = replace(options.decoding, terms=((1,),) * count)
    part = Part(Span(0, len(text)), text, text, tokens, decoding, protected=kept, terms=terms)
    source = Source(text, [part], len(tokens), is_divided=False)
    engine = AnsweringEngine(answer, timeline or Timeline(), attention, while_fetching)
    job = job_of(replace(model, engine=cast(Any, engine)), options, source, call=call)

    async def answered() -> generation_pb2.GenerateResponse:
        return await answering.answer(job, source)

    return asyncio.run(answered())
