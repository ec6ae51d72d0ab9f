"""Composes the answers of two models, of which the second reads what the first writes."""

from collections.abc import Sequence

from seqserve.v1 import generation_pb2
from seqserve_server.front.generate.alignment import Link, links_of, message_of
from seqserve_server.front.generate.joined import Joined, TextJoiner, mean, worst_reason
from seqserve_server.front.generate.records import Hop

Response = generation_pb2.GenerateResponse


def compose_hops(first: Response, second: Response | None, hops: Sequence[Hop]) -> Response:
    """Returns the answer of both models to a part, with the legs that led to it."""
    response = composed(first, second) if second else _unread(first, hops[1])
    best = first.hypotheses[0]
    leg = _leg(hops[0], [first])
    leg.text, leg.stop_reason = best.text, best.stop_reason
    if best.HasField("confidence"):
        leg.confidence = best.confidence
    response.legs.append(leg)
    leg = _leg(hops[1], [second] if second else [])
    leg.stop_reason = response.hypotheses[0].stop_reason
    if second and second.hypotheses[0].HasField("confidence"):
        leg.confidence = second.hypotheses[0].confidence
    response.legs.append(leg)
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
            leg.confidence = mean([each.confidence for each in own], weights)
        response.legs.append(leg)
    response.legs[0].text = text + joiner.rest()
    response.legs[0].stop_reason = worst_reason([each.stop_reason for each in firsts])
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
