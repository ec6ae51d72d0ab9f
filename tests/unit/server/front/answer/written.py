"""Writes the response to one source from what an engine would have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Finished, Timeline
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority
from seqserve_server.front.answer.response import response_of
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.request.languages import Affixes
from seqserve_server.front.request.parts import Part, Source
from seqserve_server.front.request.prepared import Prepared
from seqserve_server.front.request.splitting import Span


@dataclass
class AnsweredCall:
    """Stands for a finished ``EngineCall``."""

    answer: Finished
    timeline: Timeline
    attention: Finished | ServiceError | None = None
    """The answer with its attention, or why there is none; None where nobody should want it."""

    def result(self) -> Finished:
        return self.answer

    async def with_attention(self) -> Finished:
        assert self.attention is not None
        if isinstance(self.attention, ServiceError):
            raise self.attention
        return self.attention


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
    **sent_options: Any,
) -> generation_pb2.GenerateResponse:
    sent = generation_pb2.GenerationOptions(**sent_options)
    options = DecodingOptions(max_decoding_length=48)
    count = len(sent.terms) if num_targets is None else num_targets
    of_part = replace(options, terms=((1,),) * count)
    part = Part(Span(0, len(text)), tokens, of_part, sent.terms, kept=kept)
    source = Source(text, [part], len(tokens), is_divided=False)
    prepared = Prepared(
        model=model,
        sources=[source],
        sent_options=sent,
        options=options,
        affixes=Affixes(),
        priority=Priority.NORMAL,
        is_bulk=False,
    )
    call = cast(Any, AnsweredCall(answer, timeline or Timeline(), attention))

    async def respond() -> generation_pb2.GenerateResponse:
        return await response_of(prepared, source, part, call, asyncio.Lock())

    return asyncio.run(respond())
