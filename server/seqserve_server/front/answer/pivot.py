"""Answers one source over a pivot: a second model reads what a first one has written.

The parts of a source go their way one by one: while the second model answers the first sentences,
the first model reads the next ones. Each part is answered as by two calls, one after the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.front.answer.composition import composed
from seqserve_server.front.answer.joined import JoinedAnswer, mean
from seqserve_server.front.answer.parts_answer import PartsAnswer
from seqserve_server.front.answer.source_answer import SourceAnswer
from seqserve_server.front.answer.window import Windows
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.front.models.pairs import Leg
from seqserve_server.front.request.parts import Part, Source
from seqserve_server.front.request.pivot import Pivot

Response = generation_pb2.GenerateResponse
Piece = generation_pb2.Piece


class PivotAnswer(PartsAnswer["_Answered"]):
    """The answer of two models to one source of a request."""

    def __init__(
        self, pivot: Pivot, source: Source | ServiceError, call: ServerCall, windows: Windows
    ) -> None:
        """Prepares the answer.

        Args:
            pivot: The request.
            source: One of its sources.
            call: The call that the answer is for.
            windows: Bound the parts that are under way.

        Raises:
            ServiceError: The source is one that cannot be answered.
        """
        self._first = SourceAnswer(pivot.first, source, call, windows.parts)
        assert isinstance(source, Source)
        super().__init__(source, JoinedAnswer(source, pivot.second.manifest), windows.parts)
        self._pivot, self._call, self._window_between = pivot, call, windows.between
        self._between = JoinedAnswer(source, pivot.first.model.manifest)
        self._seconds: list[_Second] = []

    def response(self) -> Response:
        """Returns the whole answer once all pieces are there."""
        between, response = self._between.response(), super().response()
        first, second = self._pivot.legs
        best = between.hypotheses[0]
        leg = _leg(first, self._pivot.first.model, between)
        leg.text, leg.stop_reason = best.text, best.stop_reason
        if best.HasField("confidence"):
            leg.confidence = best.confidence
        response.legs.append(leg)
        leg = _leg(second, self._pivot.second, response)
        leg.source_tokens = sum(each.source_tokens for each in self._seconds)
        leg.stop_reason = response.hypotheses[0].stop_reason
        if self._seconds and all(each.confidence is not None for each in self._seconds):
            leg.confidence = mean(
                [each.confidence or 0.0 for each in self._seconds],
                [each.weight for each in self._seconds],
            )
        response.legs.append(leg)
        return response

    async def _streamed(self, part: Part) -> AsyncGenerator[Piece, None]:
        """Yields the text of the only part as it is decoded, and adds its answer."""
        answered = await self._half_answered(part)
        if answered.next is not None:
            async with aclosing(answered.next.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
            answered = answered._replace(second=answered.next.response())
        self._add(answered)

    async def answer(self, part: Part) -> _Answered:
        """Answers a part by both models.

        Raises:
            ServiceError: The part could not be answered by one of them.
        """
        answered = await self._half_answered(part)
        if answered.next is None:
            return answered
        return answered._replace(second=await answered.next.whole())

    async def _half_answered(self, part: Part) -> _Answered:
        """Answers a part by the first model, and prepares the answer of the second one."""
        _, first = await self._first.answer(part)
        # What a model cannot read stays as it is, and so does a text without a word.
        if first is None or not first.hypotheses[0].text.strip():
            return _Answered(part, first)
        is_bulk = self._first.is_bulk
        prepared = await self._pivot.next(first.hypotheses[0].text, self._call, is_bulk=is_bulk)
        second = SourceAnswer(prepared, prepared.sources[0], self._call, self._window_between)
        return _Answered(part, first, second)

    def _add(self, answered: _Answered) -> str:
        """Adds the next part; returns its text, and the white space before it."""
        part, first, _, second = answered
        final = first
        if first and second:
            best = second.hypotheses[0]
            confidence = best.confidence if best.HasField("confidence") else None
            weight = second.generated_tokens + 1
            self._seconds.append(_Second(second.source_tokens, confidence, weight))
            final = composed(first, second)
        elif first:
            final = Response()
            final.CopyFrom(first)
            final.generated_tokens = 0
            manifest = self._pivot.second.manifest
            final.model, final.version = manifest.name, manifest.version
        self._between.add(part, first)
        return self._joined.add(part, final)


class _Answered(NamedTuple):
    """A part, and its answers as far as they are there."""

    part: Part
    first: Response | None
    next: SourceAnswer | None = None
    second: Response | None = None


class _Second(NamedTuple):
    """What the second model says of its own answer to a part."""

    source_tokens: int
    confidence: float | None
    weight: int


def _leg(leg: Leg, model: LoadedModel, response: Response) -> generation_pb2.Leg:
    return generation_pb2.Leg(
        model=model.manifest.name,
        version=model.manifest.version,
        source_language=leg.source,
        target_language=leg.target,
        source_tokens=response.source_tokens,
        generated_tokens=response.generated_tokens,
    )
