"""Joins the answers to the parts of a source."""

import re
from collections.abc import Collection, Sequence
from typing import TypeVar

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.front.generate.protected_places import kept_in
from seqserve_server.front.generate.records import Source
from seqserve_server.text.splitting import Span

# From the mildest to the one that a caller should know of first.
_STOP_REASONS = (
    generation_pb2.STOP_REASON_UNSPECIFIED,
    generation_pb2.STOP_REASON_EOS,
    generation_pb2.STOP_REASON_STOP_SEQUENCE,
    generation_pb2.STOP_REASON_LENGTH,
    generation_pb2.STOP_REASON_TIME_LIMIT,
)


class Joined:
    """The answer to a divided source, as its parts are answered in their order."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.responses: list[generation_pb2.GenerateResponse | None] = []
        """The response to each part so far; None for a part that stays as it is."""
        self._joiner = TextJoiner(source.text)
        self._text: list[str] = []
        # Segments are written where they stay: copies of messages take most of the time.
        self._response = generation_pb2.GenerateResponse()
        self._best = self._response.hypotheses.add()
        self._timings: list[generation_pb2.Timings] = []
        self._reasons: set[generation_pb2.StopReason] = set()
        self._warnings: dict[generation_pb2.SourceWarning, None] = {}
        # For each answered part: its scores and their number of tokens.
        self._scores: list[tuple[float, float, float, int]] = []

    def response(self, manifest: Manifest) -> generation_pb2.GenerateResponse:
        """Builds the response once all parts are answered, by the model of a manifest."""
        response, best = self._response, self._best
        response.model, response.version = manifest.name, manifest.version
        best.text = "".join((*self._text, self.rest()))
        best.stop_reason = worst_reason(self._reasons)
        if self._scores and len(self._scores) == len(self._timings):
            scores, normalized, confidences, lengths = zip(*self._scores, strict=True)
            best.score = sum(scores)
            best.normalized_score = mean(normalized, lengths)
            best.confidence = mean(confidences, lengths)
        _write_timings(response.timings, self._timings)
        if self._warnings:
            response.source_warnings.extend(self._warnings)
        return response

    def add(self, response: generation_pb2.GenerateResponse | None) -> str:
        """Adds the answer to the next part, None if it stays; returns its space and text."""
        part = self.source.parts[len(self.responses)]
        best = response.hypotheses[0] if response else None
        text = best.text if best else part.original
        piece = self._joiner.add(part.span, text)
        end = self._joiner.length
        segment = self._response.segments.add()
        segment.source_begin, segment.source_end = part.span
        segment.target_begin, segment.target_end = end - len(text), end
        segment.is_wrapped = part.is_wrapped
        if kept := best.kept if best else kept_in(text, part.protected):
            self._best.kept.extend(_moved(each, segment) for each in kept)
        if best and best.warnings:
            self._best.warnings.extend(_moved(each, segment) for each in best.warnings)
        if response and best:
            self._add(response, best, segment)
        self._text.append(piece)
        self.responses.append(response)
        return piece

    def _add(
        self,
        response: generation_pb2.GenerateResponse,
        best: generation_pb2.Hypothesis,
        segment: generation_pb2.Segment,
    ) -> None:
        whole = self._response
        segment.source_tokens = response.source_tokens
        whole.source_tokens += response.source_tokens
        whole.generated_tokens += response.generated_tokens
        self._timings.append(response.timings)
        self._reasons.add(best.stop_reason)
        if best.HasField("score"):
            # The end token counts as one of the tokens.
            length = len(best.token_ids) + 1
            self._scores.append((best.score, best.normalized_score, best.confidence, length))
        if best.unmet_terms:
            self._best.unmet_terms.extend(best.unmet_terms)
        # Empty lists take as long as others.
        if warnings := response.source_warnings:
            self._warnings.update(dict.fromkeys(warnings))
            segment.source_warnings.extend(warnings)
        if pieces := response.source_pieces:
            segment.source_pieces.extend(pieces)
        for hypothesis in response.hypotheses:
            segment.hypotheses.add().CopyFrom(hypothesis)
        for field in ("hypotheses", "source_pieces", "source_warnings"):
            response.ClearField(field)

    def rest(self) -> str:
        """Returns the white space after the last part."""
        return self._joiner.rest()


Placed = TypeVar("Placed", generation_pb2.KeptText, generation_pb2.TextWarning)


def _moved(own: Placed, segment: generation_pb2.Segment) -> Placed:
    whole = type(own)()
    whole.CopyFrom(own)
    whole.source_begin += segment.source_begin
    whole.source_end += segment.source_begin
    whole.target_begin += segment.target_begin
    whole.target_end += segment.target_begin
    return whole


def worst_reason(reasons: Collection[generation_pb2.StopReason]) -> generation_pb2.StopReason:
    """Returns the stop reason that a caller should know of first."""
    return max(reasons or [generation_pb2.STOP_REASON_EOS], key=_STOP_REASONS.index)


def mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """Computes a mean with weights."""
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _write_timings(
    timings: generation_pb2.Timings, parts: Sequence[generation_pb2.Timings]
) -> None:
    if len(parts) == 1:
        timings.CopyFrom(parts[0])
        return
    timings.queue_ms = min((part.queue_ms for part in parts), default=0.0)
    timings.encode_ms = sum(part.encode_ms for part in parts)
    timings.decode_ms = sum(part.decode_ms for part in parts)
    timings.first_token_ms = min((part.first_token_ms for part in parts), default=0.0)
    timings.total_ms = max((part.total_ms for part in parts), default=0.0)


# Scripts that put no space between words or sentences: Thai, Lao, Burmese, Khmer, Chinese and
# Japanese with their punctuation, full-width forms.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)


class TextJoiner:
    """The text of all answers, as it grows, with the white space of the source.

    If two segments of a script without spaces touch, and neither answer is in such a script, the
    answers get a space between them.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._read = 0
        self._last = ""
        self.length = 0
        """Code points so far."""

    def add(self, span: Span, text: str) -> str:
        """Adds the answer to the next segment; returns it with the white space before it."""
        gap = self._source[self._read : span.begin]
        if not gap and self._last and text and self._lacks_space(span.begin, text):
            gap = " "
        self._read = span.end
        self._last = text[-1:] or self._last
        self.length += len(gap) + len(text)
        return gap + text

    def rest(self) -> str:
        """Returns the white space after the last segment."""
        return self._source[self._read :]

    def _lacks_space(self, begin: int, text: str) -> bool:
        around = self._source[begin - 1 : begin + 1]
        return bool(_UNSPACED.search(around)) and not _UNSPACED.search(self._last + text[0])
