"""Joins the answers to the parts of a source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.front.answer.kept_text import kept_in
from seqserve_server.front.request.parts import Part, Source
from seqserve_server.front.request.splitting import Span

# From the mildest to the one that a caller should know of first.
_STOP_REASONS = (
    generation_pb2.STOP_REASON_UNSPECIFIED,
    generation_pb2.STOP_REASON_EOS,
    generation_pb2.STOP_REASON_STOP_SEQUENCE,
    generation_pb2.STOP_REASON_LENGTH,
    generation_pb2.STOP_REASON_TIME_LIMIT,
)


class JoinedAnswer:
    """The answer to a source, as its parts are answered; an undivided source has the part's own."""

    def __init__(self, source: Source, manifest: Manifest) -> None:
        """Starts without answers; the model has the manifest."""
        self._source = source
        self._manifest = manifest
        self._joiner = TextJoiner(source.text)
        self._text: list[str] = []
        self._responses: list[generation_pb2.GenerateResponse] = []
        self._segments: list[generation_pb2.Segment] = []
        self._kept: list[generation_pb2.KeptText] = []

    def response(self) -> generation_pb2.GenerateResponse:
        """Builds the response once all parts are answered."""
        if not self._source.is_divided:
            return self._responses[0]
        return generation_pb2.GenerateResponse(
            model=self._manifest.name,
            version=self._manifest.version,
            hypotheses=[self._hypothesis()],
            source_tokens=sum(response.source_tokens for response in self._responses),
            generated_tokens=sum(response.generated_tokens for response in self._responses),
            timings=_timings([response.timings for response in self._responses]),
            segments=self._segments,
            source_warnings=dict.fromkeys(
                warning for segment in self._segments for warning in segment.source_warnings
            ),
        )

    def add(self, part: Part, response: generation_pb2.GenerateResponse | None) -> str:
        """Adds the next part and its answer, None if the model can read none of it.

        Returns:
            The text of the answer, and the white space before it.
        """
        text = response.hypotheses[0].text if response else self._source.text_of(part)
        piece = self._joiner.add(part.span, text)
        self._text.append(piece)
        if response:
            self._responses.append(response)
        if self._source.is_divided:
            segment = self._segment(part, text, response)
            own = segment.hypotheses[0].kept if response else kept_in(text, part.kept)
            self._kept += _moved(own, segment)
            self._segments.append(segment)
        return piece

    def rest(self) -> str:
        """Returns the white space behind the last part."""
        return self._joiner.rest()

    def _segment(
        self, part: Part, text: str, response: generation_pb2.GenerateResponse | None
    ) -> generation_pb2.Segment:
        """Moves what a part's answer says of its text to the segment."""
        segment = generation_pb2.Segment(
            source_begin=part.span.begin,
            source_end=part.span.end,
            target_begin=self._joiner.length - len(text),
            target_end=self._joiner.length,
            is_wrapped=part.is_wrapped,
        )
        if response:
            segment.hypotheses.extend(response.hypotheses)
            segment.source_tokens = response.source_tokens
            segment.source_pieces.extend(response.source_pieces)
            segment.source_warnings.extend(response.source_warnings)
            for field in ("hypotheses", "source_pieces", "source_warnings"):
                response.ClearField(field)
        return segment

    def _hypothesis(self) -> generation_pb2.Hypothesis:
        """Joins the best hypotheses of all segments."""
        best = [segment.hypotheses[0] for segment in self._segments if segment.hypotheses]
        reasons = [part.stop_reason for part in best] or [generation_pb2.STOP_REASON_EOS]
        joined = generation_pb2.Hypothesis(
            text="".join((*self._text, self.rest())),
            kept=self._kept,
            stop_reason=max(reasons, key=_STOP_REASONS.index),
        )
        if best and all(part.HasField("score") for part in best):
            # The end token counts as one of the tokens.
            lengths = [len(part.token_ids) + 1 for part in best]
            joined.score = sum(part.score for part in best)
            joined.normalized_score = mean([part.normalized_score for part in best], lengths)
            joined.confidence = mean([part.confidence for part in best], lengths)
        for part in best:
            joined.unmet_terms.extend(part.unmet_terms)
        return joined


def _moved(
    kept: Iterable[generation_pb2.KeptText], segment: generation_pb2.Segment
) -> Iterator[generation_pb2.KeptText]:
    """Yields what a segment keeps, with its places in the whole texts."""
    for own in kept:
        whole = generation_pb2.KeptText(text=own.text, placement=own.placement)
        whole.source_begin = segment.source_begin + own.source_begin
        whole.source_end = segment.source_begin + own.source_end
        whole.target_begin = segment.target_begin + own.target_begin
        whole.target_end = segment.target_begin + own.target_end
        yield whole


def mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """Computes a mean with weights."""
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _timings(all_timings: list[generation_pb2.Timings]) -> generation_pb2.Timings:
    return generation_pb2.Timings(
        queue_ms=min((timings.queue_ms for timings in all_timings), default=0.0),
        encode_ms=sum(timings.encode_ms for timings in all_timings),
        decode_ms=sum(timings.decode_ms for timings in all_timings),
        first_token_ms=min((timings.first_token_ms for timings in all_timings), default=0.0),
        total_ms=max((timings.total_ms for timings in all_timings), default=0.0),
    )


# Scripts that put no space between words or sentences: Thai, Lao, Burmese, Khmer, Chinese and
# Japanese with their punctuation, full-width forms.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)


class TextJoiner:
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
