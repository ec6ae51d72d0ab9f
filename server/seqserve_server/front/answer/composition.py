"""Composes the answers of two models, of which the second one reads what the first one wrote."""

from __future__ import annotations

from collections.abc import Sequence

from seqserve.v1 import generation_pb2
from seqserve_server.front.answer.alignment import Link, links_of, message_of

Response = generation_pb2.GenerateResponse


def composed(first: Response, second: Response) -> Response:
    """Returns the answer of the second model as one to the source of the first one."""
    response = Response()
    response.CopyFrom(second)
    read = first.hypotheses[0]
    read_links = _links(read)
    written_links = [*map(_links, response.hypotheses)]
    if response.segments:
        # They are parts of the text between, which the caller does not have.
        written_links = [_joined_links(response.segments)]
        response.ClearField("segments")
    for hypothesis, links in zip(response.hypotheses, written_links, strict=True):
        if read.HasField("confidence") and hypothesis.HasField("confidence"):
            hypothesis.confidence *= read.confidence
        if links is not None and read_links is not None:
            hypothesis.alignment.CopyFrom(message_of(_composed_links(read_links, links)))
        kept = _composed_kept(read.kept, hypothesis.kept)
        hypothesis.ClearField("kept")
        hypothesis.kept.extend(kept)
    response.source_tokens = first.source_tokens
    response.ClearField("source_warnings")
    response.source_warnings.extend(first.source_warnings)
    timings = response.timings
    timings.queue_ms = first.timings.queue_ms
    timings.encode_ms += first.timings.encode_ms
    timings.decode_ms += first.timings.decode_ms
    return response


def _composed_kept(
    first: Sequence[generation_pb2.KeptText], second: Sequence[generation_pb2.KeptText]
) -> list[generation_pb2.KeptText]:
    """Tells what a source keeps, with its places in the last text and the less sure placement."""
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


def _links(hypothesis: generation_pb2.Hypothesis) -> list[Link] | None:
    return links_of(hypothesis.alignment) if hypothesis.HasField("alignment") else None


def _joined_links(segments: Sequence[generation_pb2.Segment]) -> list[Link]:
    """Joins the links of segments, whose places count from where the segment begins."""
    return [
        link.moved(segment.source_begin, segment.target_begin)
        for segment in segments
        for hypothesis in segment.hypotheses[:1]
        for link in _links(hypothesis) or ()
    ]


def _composed_links(first: Sequence[Link], second: Sequence[Link]) -> list[Link]:
    """Composes the links of two alignments, where the target of the first is the second's source.

    A token comes from where that token of the text between comes from with which its own place has
    the most characters in common, the first of several; one that has none in common is left out.
    """
    composed = []
    for (begin, end), target in second:
        common = [min(end, link.target.end) - max(begin, link.target.begin) for link in first]
        most = max(common, default=0)
        if most > 0:
            composed.append(Link(first[common.index(most)].source, target))
    return composed
