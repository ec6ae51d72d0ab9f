"""Answers of the fake servers: the source in capitals, one token a word.

The tokens of a given target score -0.5, -1.0, -1.5 and so on. There are two layers of two heads. In
layer 1, head 0 attends to the token with the same index, head 1 to all tokens equally; in layer 0
it is the other way round. The decoder of the model ``ssru`` is recurrent and has no attention. The
model ``blind`` shows no alignment. Sources with a smile have unknown characters, those with я
another script. The number after № is missing in their answers. Scissors cut an answer at a limit.
"""

import math
import re

from seqserve.v1 import generation_pb2

PLAIN = generation_pb2.GenerationOptions()
WARNINGS = {
    generation_pb2.SOURCE_WARNING_UNKNOWN_CHARACTERS: {"🙂", "я"},
    generation_pb2.SOURCE_WARNING_OTHER_SCRIPT: {"я"},
}


def answer(
    source: str,
    *,
    model: str = "",
    version: int = 0,
    options: generation_pb2.GenerationOptions = PLAIN,
) -> generation_pb2.GenerateResponse:
    words = source.upper().split()
    warnings = [kind for kind, signs in WARNINGS.items() if not signs.isdisjoint(source)]
    total = options.num_hypotheses or 1
    return generation_pb2.GenerateResponse(
        model=model or "capitals",
        version=version or 2,
        hypotheses=[
            hypothesis(source.upper(), rank, options, is_aligned=model != "blind")
            for rank in range(total)
        ],
        source_tokens=len(words) + 1,
        generated_tokens=len(words),
        timings=generation_pb2.Timings(
            queue_ms=1.0, encode_ms=2.0, decode_ms=3.0, first_token_ms=4.0, total_ms=6.0
        ),
        source_pieces=[*source.split(), "</s>"] if options.return_attention else [],
        source_warnings=warnings,
    )


def hypothesis(
    text: str, rank: int, options: generation_pb2.GenerationOptions, *, is_aligned: bool = True
) -> generation_pb2.Hypothesis:
    words = text.split()
    message = generation_pb2.Hypothesis(
        text=text + "!" * rank,
        tokens=words,
        token_ids=range(10, 10 + len(words)),
        stop_reason=generation_pb2.STOP_REASON_LENGTH
        if "✂" in text
        else generation_pb2.STOP_REASON_EOS,
    )
    if options.return_scores or not options.HasField("return_scores"):
        message.score, message.normalized_score = -1.5 - rank, -0.5 - rank
    if options.return_token_scores:
        message.token_scores.extend([math.nan] + [-0.5] * len(words))
    for number in re.finditer(r"№(\d+)", text):
        message.warnings.add(
            kind=generation_pb2.TEXT_WARNING_KIND_NUMBERS_DIFFER,
            source_text=number[1],
            source_begin=number.start(1),
            source_end=number.end(1),
        )
    message.unmet_terms.extend(term for term in options.terms if term.target not in message.text)
    for _ in range(len(words) + 1 if options.return_top_tokens else 0):
        best = range(options.return_top_tokens)
        message.top_tokens.add(
            tokens=[f"T{n}" for n in best], token_ids=best, scores=[-0.5 - n for n in best]
        )
    if options.return_alignment and is_aligned:
        places = [found.span() for found in re.finditer(r"\S+", text)]
        begins, ends = zip(*places, strict=True)
        columns = {"source_begins": begins, "target_begins": begins}
        columns |= {"source_ends": ends, "target_ends": ends}
        message.alignment.CopyFrom(generation_pb2.Alignment(**columns))
    for place in range(len(words) if options.return_attention else 0):
        message.attention.add(weights=[float(key == place) for key in range(len(words) + 1)])
    return message


def stream_of(
    source: str, options: generation_pb2.GenerationOptions = PLAIN
) -> list[generation_pb2.GenerateStreamResponse]:
    pieces = [
        generation_pb2.GenerateStreamResponse(
            piece=generation_pb2.Piece(text=character.upper(), token_ids=[number])
        )
        for number, character in enumerate(source)
    ]
    result = answer(source, options=options)
    return [*pieces, generation_pb2.GenerateStreamResponse(result=result)]


def scored(request: generation_pb2.ScoreRequest) -> generation_pb2.ScoreResponse:
    tokens = [*request.target.split(), "</s>"]
    scores = [-0.5 * (place + 1) for place in range(len(tokens))]
    return generation_pb2.ScoreResponse(
        model=request.model or "capitals",
        version=request.version or 2,
        tokens=tokens,
        token_ids=range(10, 10 + len(tokens)),
        token_scores=scores,
        score=sum(scores),
        normalized_score=sum(scores) / len(scores),
        source_tokens=len(request.source.split()) + 1,
    )


def tokenized(request: generation_pb2.TokenizeRequest) -> generation_pb2.TokenizeResponse:
    words = list(re.finditer(r"\S+", request.text))
    return generation_pb2.TokenizeResponse(
        model=request.model or "capitals",
        version=request.version or 2,
        tokens=[f"▁{word[0]}" for word in words],
        token_ids=range(10, 10 + len(words)),
        begins=[word.start() for word in words],
        ends=[word.end() for word in words],
        length=len(words) + 1,
        max_length=64,
    )


def attended(request: generation_pb2.AttentionRequest) -> generation_pb2.AttentionResponse:
    source = [*request.source.split(), "</s>"]
    target = [*(request.target or request.source.upper()).split(), "</s>"]
    return generation_pb2.AttentionResponse(
        model=request.model or "capitals",
        version=request.version or 2,
        source_tokens=source,
        target_tokens=target,
        encoder=weights(len(source), len(source)),
        decoder=weights(len(target), len(target), 0 if request.model == "ssru" else 2),
        cross=weights(len(target), len(source)),
    )


def weights(queries: int, keys: int, layers: int = 2) -> generation_pb2.AttentionWeights:
    message = generation_pb2.AttentionWeights(layers=layers, heads=2, queries=queries, keys=keys)
    if not layers:
        return message
    same = [float(key == min(query, keys - 1)) for query in range(queries) for key in range(keys)]
    alike = [1.0 / keys] * (queries * keys)
    message.weights.extend([*alike, *same, *same, *alike])
    return message
