"""Composes the answers of two models, of which the second one reads what the first one wrote."""

from __future__ import annotations

from collections.abc import Sequence

from seqserve.v1 import generation_pb2

Response = generation_pb2.GenerateResponse


def composed(first: Response, second: Response) -> Response:
    """Returns the answer of the second model as one to the source of the first one."""
    response = Response()
    response.CopyFrom(second)
    read = first.hypotheses[0]
    alignments = [*map(_alignment, response.hypotheses)]
    if response.segments:
        # They are parts of the text between, which the caller does not have.
        alignments = [_joined_alignment(response.segments)]
        response.ClearField("segments")
    for hypothesis, alignment in zip(response.hypotheses, alignments, strict=True):
        if read.HasField("confidence") and hypothesis.HasField("confidence"):
            hypothesis.confidence *= read.confidence
        if alignment is not None and read.HasField("alignment"):
            hypothesis.alignment.CopyFrom(_composed_alignment(read.alignment, alignment))
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


def _alignment(hypothesis: generation_pb2.Hypothesis) -> generation_pb2.Alignment | None:
    return hypothesis.alignment if hypothesis.HasField("alignment") else None


def _joined_alignment(
    segments: Sequence[generation_pb2.Segment],
) -> generation_pb2.Alignment | None:
    """Joins the alignments of segments, whose places count from where the segment begins."""
    joined = generation_pb2.Alignment()
    for segment in segments:
        if not segment.hypotheses or (own := _alignment(segment.hypotheses[0])) is None:
            continue
        joined.source_begins.extend(segment.source_begin + each for each in own.source_begins)
        joined.source_ends.extend(segment.source_begin + each for each in own.source_ends)
        joined.target_begins.extend(segment.target_begin + each for each in own.target_begins)
        joined.target_ends.extend(segment.target_begin + each for each in own.target_ends)
    return joined


def _composed_alignment(
    first: generation_pb2.Alignment, second: generation_pb2.Alignment
) -> generation_pb2.Alignment:
    """Composes two alignments where the target of the first one is the source of the second one.

    A token comes from where that token of the text between comes from with which its own place has
    the most characters in common, the first of several; one that has none in common is left out.
    """
    between = list(zip(first.target_begins, first.target_ends, strict=True))
    message = generation_pb2.Alignment()
    places = zip(second.source_begins, second.source_ends, strict=True)
    for index, (begin, end) in enumerate(places):
        common = [min(end, last) - max(begin, start) for start, last in between]
        most = max(common, default=0)
        if most > 0:
            origin = common.index(most)
            message.source_begins.append(first.source_begins[origin])
            message.source_ends.append(first.source_ends[origin])
            message.target_begins.append(second.target_begins[index])
            message.target_ends.append(second.target_ends[index])
    return message
