"""Joins answers: to the parts of a source, and of two models, of which the second reads what the
first writes."""

from collections.abc import Collection, Sequence
from typing import TypeVar

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.front.generate.records import Hop, Link, Source, kept_in, links_of, message_of
from seqserve_server.text.splitting import TextJoiner

Response = generation_pb2.GenerateResponse

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
        self.responses: list[Response | None] = []
        """The response to each part so far; None for a part that stays as it is."""
        self._joiner = TextJoiner(source.text)
        self._text: list[str] = []
        # Segments are written where they stay: copies of messages take most of the time.
        self._response = Response()
        self._best = self._response.hypotheses.add()
        self._timings: list[generation_pb2.Timings] = []
        self._reasons: set[generation_pb2.StopReason] = set()
        self._warnings: dict[generation_pb2.SourceWarning, None] = {}
        # For each answered part: its scores and their number of tokens.
        self._scores: list[tuple[float, float, float, int]] = []

    def response(self, manifest: Manifest) -> Response:
        """Builds the response once all parts are answered, by the model of a manifest."""
        response, best = self._response, self._best
        response.model, response.version = manifest.name, manifest.version
        best.text = "".join((*self._text, self.rest()))
        best.stop_reason = _worst_reason(self._reasons)
        if self._scores and len(self._scores) == len(self._timings):
            scores, normalized, confidences, lengths = zip(*self._scores, strict=True)
            best.score = sum(scores)
            best.normalized_score = _mean(normalized, lengths)
            best.confidence = _mean(confidences, lengths)
        _write_timings(response.timings, self._timings)
        if self._warnings:
            response.source_warnings.extend(self._warnings)
        return response

    def add(self, response: Response | None) -> str:
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
        self, response: Response, best: generation_pb2.Hypothesis, segment: generation_pb2.Segment
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


def _worst_reason(reasons: Collection[generation_pb2.StopReason]) -> generation_pb2.StopReason:
    return max(reasons or [generation_pb2.STOP_REASON_EOS], key=_STOP_REASONS.index)


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
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


def compose_hops(first: Response, second: Response | None, hops: Sequence[Hop]) -> Response:
    """Returns the answer of both models to a part, with the legs that led to it."""
    response = composed(first, second) if second else _unread(first, hops[1])
    for hop, own in zip(hops, ([first], [second] if second else []), strict=True):
        leg = _leg(hop, own)
        if own and own[0].hypotheses[0].HasField("confidence"):
            leg.confidence = own[0].hypotheses[0].confidence
        response.legs.append(leg)
    response.legs[0].text = first.hypotheses[0].text
    response.legs[0].stop_reason = first.hypotheses[0].stop_reason
    response.legs[1].stop_reason = response.hypotheses[0].stop_reason
    return response


def join_legs(hops: Sequence[Hop], joined: Joined, response: Response) -> None:
    """Adds to a joined answer what each model says of its answers to all parts."""
    source, joiner, text = joined.source, TextJoiner(joined.source.text), ""
    for part, each in zip(source.parts, joined.responses, strict=True):
        text += joiner.add(part.span, each.legs[0].text if each else part.original)
    legs = [each.legs for each in joined.responses if each]
    firsts = [first for first, _ in legs]
    # Text that the second model has not read has no source tokens.
    seconds = [second for _, second in legs if second.source_tokens]
    for hop, own in zip(hops, (firsts, seconds), strict=True):
        leg = _leg(hop, own)
        if own and all(each.HasField("confidence") for each in own):
            weights = [each.generated_tokens + 1 for each in own]
            leg.confidence = _mean([each.confidence for each in own], weights)
        response.legs.append(leg)
    response.legs[0].text = text + joiner.rest()
    response.legs[0].stop_reason = _worst_reason([each.stop_reason for each in firsts])
    response.legs[1].stop_reason = response.hypotheses[0].stop_reason


def _leg(hop: Hop, answers: Sequence[Response | generation_pb2.Leg]) -> generation_pb2.Leg:
    assert hop.leg is not None
    return generation_pb2.Leg(
        model=hop.model.manifest.name,
        version=hop.model.manifest.version,
        source_language=hop.leg.source,
        target_language=hop.leg.target,
        source_tokens=sum(each.source_tokens for each in answers),
        generated_tokens=sum(each.generated_tokens for each in answers),
    )


def _unread(first: Response, hop: Hop) -> Response:
    response = Response()
    response.CopyFrom(first)
    response.generated_tokens = 0
    response.model, response.version = hop.model.manifest.name, hop.model.manifest.version
    return response


def composed(first: Response, second: Response) -> Response:
    """Returns the answer of the second model as one to the source of the first one."""
    response = Response()
    response.CopyFrom(second)
    read = first.hypotheses[0]
    read_links = _links(read)
    written_links = [*map(_links, response.hypotheses)]
    if response.segments:
        # They are parts of the text between, which the caller does not have.
        written_links = [
            [
                link.moved(segment.source_begin, segment.target_begin)
                for segment in response.segments
                for hypothesis in segment.hypotheses[:1]
                for link in _links(hypothesis) or ()
            ]
        ]
        response.ClearField("segments")
    for hypothesis, links in zip(response.hypotheses, written_links, strict=True):
        if read.HasField("confidence") and hypothesis.HasField("confidence"):
            hypothesis.confidence *= read.confidence
        if links is not None and read_links is not None:
            hypothesis.alignment.CopyFrom(message_of(_compose_links(read_links, links)))
        kept = _compose_kept(read.kept, hypothesis.kept)
        hypothesis.ClearField("kept")
        hypothesis.kept.extend(kept)
        warnings = _compose_warnings(read.warnings, hypothesis.warnings)
        hypothesis.ClearField("warnings")
        hypothesis.warnings.extend(warnings)
    response.source_tokens = first.source_tokens
    response.ClearField("source_warnings")
    response.source_warnings.extend(first.source_warnings)
    timings = response.timings
    timings.queue_ms = first.timings.queue_ms
    timings.encode_ms += first.timings.encode_ms
    timings.decode_ms += first.timings.decode_ms
    return response


def _compose_kept(
    first: Sequence[generation_pb2.KeptText], second: Sequence[generation_pb2.KeptText]
) -> list[generation_pb2.KeptText]:
    between = {(each.source_begin, each.source_end): each for each in second}
    kept = []
    for own in first:
        composed = generation_pb2.KeptText(
            text=own.text, source_begin=own.source_begin, source_end=own.source_end
        )
        if last := between.get((own.target_begin, own.target_end)):
            composed.target_begin, composed.target_end = last.target_begin, last.target_end
            composed.placement = max(own.placement, last.placement)
        else:
            composed.placement = generation_pb2.PLACEMENT_LOST
        kept.append(composed)
    return kept


def _compose_warnings(
    first: Sequence[generation_pb2.TextWarning], second: Sequence[generation_pb2.TextWarning]
) -> list[generation_pb2.TextWarning]:
    warnings = []
    for own, lost in [(each, "target") for each in first] + [(each, "source") for each in second]:
        warning = generation_pb2.TextWarning()
        warning.CopyFrom(own)
        warning.ClearField(f"{lost}_begin")
        warning.ClearField(f"{lost}_end")
        warnings.append(warning)
    return warnings


def _links(hypothesis: generation_pb2.Hypothesis) -> list[Link] | None:
    return links_of(hypothesis.alignment) if hypothesis.HasField("alignment") else None


def _compose_links(first: Sequence[Link], second: Sequence[Link]) -> list[Link]:
    """Composes the links of two alignments, where the target of the first is the second's source.

    A target token is linked where the token of the text between that shares most characters with it
    is linked; without such a token it has no link.
    """
    composed = []
    for (begin, end), target in second:
        common = [min(end, link.target.end) - max(begin, link.target.begin) for link in first]
        most = max(common, default=0)
        if most > 0:
            composed.append(Link(first[common.index(most)].source, target))
    return composed
