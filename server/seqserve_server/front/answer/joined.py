"""Answers the segments of a text, as many at once as the engine can run."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing

from seqserve.v1 import generation_pb2
from seqserve_server.contract.manifest import Manifest
from seqserve_server.front.answer.window import Room, answers_in_order
from seqserve_server.front.request.parts import Document, Segment
from seqserve_server.front.request.splitting import Span

Answer = Callable[[str], Awaitable[generation_pb2.GenerateResponse]]

# From the mildest to the one that a caller should know of first.
_STOP_REASONS = (
    generation_pb2.STOP_REASON_UNSPECIFIED,
    generation_pb2.STOP_REASON_EOS,
    generation_pb2.STOP_REASON_STOP_SEQUENCE,
    generation_pb2.STOP_REASON_LENGTH,
    generation_pb2.STOP_REASON_TIME_LIMIT,
)


class SegmentedAnswer:
    """The answer to a text, from those of its segments."""

    def __init__(
        self,
        document: Document,
        manifest: Manifest,
        answer: Answer,
        room: Room,
        note: Callable[[generation_pb2.GenerateResponse], None] = lambda response: None,
    ) -> None:
        """Prepares the answer.

        Args:
            document: The text.
            manifest: Of the model.
            answer: Answers one segment.
            room: How many segments may be under way at once.
            note: Notes the response in the record of the call.
        """
        self._note = note
        self._document = document
        self._manifest = manifest
        self._answer = answer
        self._room = room
        self._joint = Joint(document.text)
        self._text: list[str] = []
        self._responses: list[generation_pb2.GenerateResponse] = []
        self._segments: list[generation_pb2.Segment] = []

    async def pieces(self) -> AsyncGenerator[str, None]:
        """Yields the text, in its order: each segment as soon as all before it are answered.

        Raises:
            ServiceError: A segment could not be answered, and so the text cannot.
        """
        answers = answers_in_order(self._document.segments, self._answered, self._room)
        async with aclosing(answers):
            async for segment, response in answers:
                yield self.add(segment, response)
        if rest := self.end():
            yield rest

    async def whole(self) -> generation_pb2.GenerateResponse:
        """Answers the whole text.

        Raises:
            ServiceError: A segment could not be answered, and so the text cannot.
        """
        async with aclosing(self.pieces()) as pieces:
            async for _ in pieces:
                pass
        return self.response()

    def response(self) -> generation_pb2.GenerateResponse:
        """Builds the response once all pieces are there."""
        response = generation_pb2.GenerateResponse(
            model=self._manifest.name,
            version=self._manifest.version,
            hypotheses=[self._hypothesis()],
            source_tokens=sum(each.source_tokens for each in self._responses),
            generated_tokens=sum(each.generated_tokens for each in self._responses),
            timings=_timings([each.timings for each in self._responses]),
            segments=self._segments,
            source_warnings=dict.fromkeys(
                warning for each in self._segments for warning in each.source_warnings
            ),
        )
        self._note(response)
        return response

    def add(self, segment: Segment, response: generation_pb2.GenerateResponse | None) -> str:
        """Adds the next segment and its answer, None if the model does not read it.

        Returns:
            The text of the answer, and the white space before it.
        """
        text = response.hypotheses[0].text if response else self._document.source_of(segment)
        piece = self._joint.add(segment.span, text)
        message = generation_pb2.Segment(
            source_begin=segment.span.begin,
            source_end=segment.span.end,
            target_begin=self._joint.length - len(text),
            target_end=self._joint.length,
            is_wrapped=segment.is_wrapped,
        )
        if response:
            message.hypotheses.extend(response.hypotheses)
            message.source_tokens = response.source_tokens
            message.source_pieces.extend(response.source_pieces)
            message.source_warnings.extend(response.source_warnings)
            # Kept without what the segment has now.
            for field in ("hypotheses", "source_pieces", "source_warnings"):
                response.ClearField(field)
            self._responses.append(response)
        self._segments.append(message)
        self._text.append(piece)
        return piece

    def end(self) -> str:
        """Adds the white space behind the last segment, and returns it."""
        rest = self._joint.rest()
        self._text.append(rest)
        return rest

    async def _answered(
        self, segment: Segment
    ) -> tuple[Segment, generation_pb2.GenerateResponse | None]:
        if not segment.is_read:
            return segment, None
        return segment, await self._answer(self._document.source_of(segment))

    def _hypothesis(self) -> generation_pb2.Hypothesis:
        """Joins the best hypotheses of all segments."""
        best = [segment.hypotheses[0] for segment in self._segments if segment.hypotheses]
        reasons = [each.stop_reason for each in best] or [generation_pb2.STOP_REASON_EOS]
        joined = generation_pb2.Hypothesis(
            text="".join(self._text), stop_reason=max(reasons, key=_STOP_REASONS.index)
        )
        if best and all(each.HasField("score") for each in best):
            # The end token counts as one of the tokens.
            lengths = [len(each.token_ids) + 1 for each in best]
            joined.score = sum(each.score for each in best)
            joined.normalized_score = _mean((each.normalized_score for each in best), lengths)
            joined.confidence = _mean((each.confidence for each in best), lengths)
        for each in best:
            joined.unmet_terms.extend(each.unmet_terms)
        return joined


def _mean(values: Iterable[float], weights: list[int]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _timings(all_timings: list[generation_pb2.Timings]) -> generation_pb2.Timings:
    return generation_pb2.Timings(
        queue_ms=min((each.queue_ms for each in all_timings), default=0.0),
        encode_ms=sum(each.encode_ms for each in all_timings),
        decode_ms=sum(each.decode_ms for each in all_timings),
        first_token_ms=min((each.first_token_ms for each in all_timings), default=0.0),
        total_ms=max((each.total_ms for each in all_timings), default=0.0),
    )


# Scripts that put no space between words or sentences: Thai, Lao, Burmese, Khmer, Chinese and
# Japanese with their punctuation, full-width forms.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)


class Joint:
    """The text of all answers, as it grows.

    White space comes back as it was. Where a script without spaces has none between two segments,
    and neither of their answers is in such a script, one space is added.
    """

    def __init__(self, source: str) -> None:
        """Starts empty."""
        self._source = source
        self._read = 0
        self._last = ""
        self._length = 0

    def add(self, span: Span, text: str) -> str:
        """Adds the answer to the next segment; returns it with the white space before it."""
        gap = self._source[self._read : span.begin]
        if not gap and self._last and text and self._lacks_space(span.begin, text):
            gap = " "
        self._read = span.end
        self._last = text[-1:] or self._last
        self._length += len(gap) + len(text)
        return gap + text

    @property
    def length(self) -> int:
        """Code points so far."""
        return self._length

    def rest(self) -> str:
        """Returns the white space behind the last segment."""
        return self._source[self._read :]

    def _lacks_space(self, begin: int, text: str) -> bool:
        around = self._source[begin - 1 : begin + 1]
        return bool(_UNSPACED.search(around)) and not _UNSPACED.search(self._last + text[0])
