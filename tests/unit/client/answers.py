"""What the fakes answer: the source in capitals, one token a word."""

from __future__ import annotations

from seqserve.v1 import generation_pb2


def answer(source: str, *, model: str = "", version: int = 0) -> generation_pb2.GenerateResponse:
    words = source.upper().split()
    hypothesis = generation_pb2.Hypothesis(
        text=source.upper(),
        tokens=words,
        token_ids=range(10, 10 + len(words)),
        score=-1.5,
        stop_reason=generation_pb2.STOP_REASON_EOS,
    )
    return generation_pb2.GenerateResponse(
        model=model or "capitals",
        version=version or 2,
        hypotheses=[hypothesis],
        source_tokens=len(words) + 1,
        generated_tokens=len(words),
        timings=generation_pb2.Timings(
            queue_ms=1.0, encode_ms=2.0, decode_ms=3.0, first_token_ms=4.0, total_ms=6.0
        ),
    )


def stream_of(source: str) -> list[generation_pb2.GenerateStreamResponse]:
    pieces = [
        generation_pb2.GenerateStreamResponse(
            piece=generation_pb2.Piece(text=character.upper(), token_ids=[number])
        )
        for number, character in enumerate(source)
    ]
    return [*pieces, generation_pb2.GenerateStreamResponse(result=answer(source))]
