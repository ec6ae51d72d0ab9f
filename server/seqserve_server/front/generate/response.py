"""Writes the engine's results as messages of ``seqserve.v1``."""

import math
import re
import time
import unicodedata
from collections.abc import Generator, Sequence
from operator import eq, mul

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Finished, Hypothesis, StopReason, Timeline
from seqserve_server.front.generate.records import Hop, Part
from seqserve_server.text.protected import without
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import script_of

_STOP_REASONS = {
    StopReason.EOS: generation_pb2.STOP_REASON_EOS,
    StopReason.LENGTH: generation_pb2.STOP_REASON_LENGTH,
    StopReason.STOP_SEQUENCE: generation_pb2.STOP_REASON_STOP_SEQUENCE,
    StopReason.TIME_LIMIT: generation_pb2.STOP_REASON_TIME_LIMIT,
}

INTERCEPT = -2.24
WEIGHTS = (4.18, -0.52, -0.82)

# Longest sequence of tokens whose repetition is looked for.
_MAX_PERIOD = 8


def response_of(
    hop: Hop, part: Part, answer: Finished, timeline: Timeline
) -> Generator[None, None, generation_pb2.GenerateResponse]:
    """Writes the answer to a part; pauses between hypotheses that take milliseconds."""
    tokenizer, options, tokens = hop.model.tokenizer, hop.options, part.tokens
    # Fields are set one by one, and messages where they stay: arguments take longer, and copies.
    response = generation_pb2.GenerateResponse()
    response.model, response.version = hop.model.manifest.name, hop.model.manifest.version
    response.source_tokens = len(tokens)
    response.generated_tokens = sum([len(each.token_ids) for each in answer.hypotheses])
    _write_timings(response.timings, timeline)
    if options.returns_attention:
        response.source_pieces.extend(tokenizer.source.tokens(tokens))
    for hypothesis in answer.hypotheses:
        for feature in options.features:
            hypothesis = feature.replace_tokens(part, hypothesis)
        message = response.hypotheses.add()
        _write_hypothesis(message, hypothesis, tokenizer)
        if hypothesis.score is not None:
            message.confidence = confidence(
                hypothesis.score, hypothesis.token_ids, len(tokens), len(options.decoding.prefix)
            )
        if options.returns_attention:
            rows = hypothesis.attention_rows(len(tokens))
            message.attention.extend(generation_pb2.TokenAttention(weights=row) for row in rows)
        for feature in options.features:
            feature.write(part, hypothesis, message)
        if part.check is not None:
            part.check.write(part, hypothesis, message)
        if hypothesis.attention or hypothesis.top_tokens:
            yield
    read, written = without(part.text, part.protected), response.hypotheses[0].text
    if warnings := source_warnings(read, tokens, tokenizer, written):
        response.source_warnings.extend(warnings)
    return response


def _write_hypothesis(
    message: generation_pb2.Hypothesis, hypothesis: Hypothesis, tokenizer: Tokenizer
) -> None:
    ids = hypothesis.token_ids
    # Without the stop sequence.
    message.text = tokenizer.decode(ids)[: hypothesis.text_length]
    message.tokens.extend(tokenizer.target.tokens(ids))
    message.token_ids.extend(ids)
    if hypothesis.score is not None:
        message.score = hypothesis.score
    if hypothesis.normalized_score is not None:
        message.normalized_score = hypothesis.normalized_score
    message.stop_reason = _STOP_REASONS[hypothesis.stop_reason]
    if hypothesis.token_scores:
        message.token_scores.extend(hypothesis.token_scores)
    for top in hypothesis.top_tokens:
        tokens = tokenizer.target.tokens(top.token_ids)
        message.top_tokens.add(tokens=tokens, token_ids=top.token_ids, scores=top.log_probabilities)


def _write_timings(timings: generation_pb2.Timings, timeline: Timeline) -> None:
    arrived_s = timeline.arrived_s
    if not timeline.encode_began_s:
        # Its time limit passed in the queue.
        timings.queue_ms = timings.total_ms = 1e3 * (timeline.finished_s - arrived_s)
        return
    timings.queue_ms = 1e3 * (timeline.encode_began_s - arrived_s)
    timings.encode_ms = 1e3 * (timeline.encode_ended_s - timeline.encode_began_s)
    timings.decode_ms = 1e3 * (timeline.finished_s - timeline.encode_ended_s)
    timings.first_token_ms = 1e3 * (timeline.first_token_s - arrived_s)
    timings.total_ms = 1e3 * (time.monotonic() - arrived_s)


_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|<!--")
# Names and quotations may be in another script than the text around them.
_OTHER_SHARE = 0.3


def source_warnings(
    text: str, ids: Sequence[int], tokenizer: Tokenizer, written: str = ""
) -> list[generation_pb2.SourceWarning]:
    """Looks for what the model cannot read; a character that its answer has too is not lost."""
    alphabet, text = tokenizer.alphabet, tokenizer.spelled(text).text
    warnings = []
    if not alphabet.unknown_ids.isdisjoint(ids) and _lacks_letter(text, tokenizer, written):
        warnings.append(generation_pb2.SOURCE_WARNING_UNKNOWN_CHARACTERS)
    if not text.isascii() or "LATIN" not in alphabet.scripts:
        scripts = [script for script in map(script_of, text) if script]
        others = sum(script not in alphabet.scripts for script in scripts)
        if others and others >= _OTHER_SHARE * len(scripts):
            warnings.append(generation_pb2.SOURCE_WARNING_OTHER_SCRIPT)
    if "<" in text and _MARKUP.search(text):
        warnings.append(generation_pb2.SOURCE_WARNING_MARKUP)
    return warnings


def _lacks_letter(text: str, tokenizer: Tokenizer, written: str) -> bool:
    """Returns whether a letter or symbol is missing; marks of punctuation rarely are missed."""
    pieces = tokenizer.pieces(text)
    unknown = (
        text[slice(*place)]
        for id_, place in zip(pieces.ids, pieces.offsets, strict=True)
        if id_ in tokenizer.alphabet.unknown_ids
    )
    lost = (each for part in unknown for each in part if each not in written)
    return any(unicodedata.category(each)[0] in "LS" for each in lost)


def confidence(score: float, ids: Sequence[int], source_tokens: int, prefix: int = 0) -> float:
    """Estimates the quality of an answer, as chrF / 100, from figures of its decoding.

    A logistic function, fitted by ``recipes/confidence.py`` to the chrF of the shipped model's
    translations: of sentences that it has not seen, of several in one text, and of a language that
    it does not read. Other models keep the order of their answers, but may be surer, or less sure,
    than they are right. Arguments are as in :func:`predictors`.
    """
    values = predictors(score, ids, source_tokens, prefix)
    value = INTERCEPT + sum(map(mul, WEIGHTS, values))
    return 1.0 / (1.0 + math.exp(-value))


def predictors(
    score: float, ids: Sequence[int], source_tokens: int, prefix: int = 0
) -> tuple[float, float, float]:
    """Computes what an estimate is made of, where ``prefix`` tokens are forced and not scored.

    They are the geometric mean of the probabilities of the tokens, end token included; the absolute
    logarithm of the ratio of lengths, in tokens; the share of the tokens that belong to the longest
    repetition.
    """
    length = len(ids) + 1
    probability = math.exp(min(0.0, score / max(1, length - prefix)))
    return probability, abs(math.log(length / source_tokens)), _repeated(ids) / length


def _repeated(ids: Sequence[int]) -> int:
    if len(set(ids)) == len(ids):
        return 0
    longest = 0
    for period in range(1, min(_MAX_PERIOD, len(ids) // 2) + 1):
        # A one for each token that is the one a period before.
        repeats = bytes(map(eq, ids[period:], ids))
        run = max(map(len, repeats.split(b"\0")))
        if run >= period:
            longest = max(longest, run)
    return longest
