"""Writes the engine's results as messages of ``seqserve.v1``."""

from __future__ import annotations

import asyncio
import re
import time
import unicodedata
from array import array
from collections.abc import Sequence
from contextlib import suppress

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import QueueFull
from seqserve_server.contract.events import Finished, Hypothesis, StopReason, Timeline, TopTokens
from seqserve_server.front.answer.alignment import SourcePlaces, alignment_of
from seqserve_server.front.answer.capitals import write_in_capitals
from seqserve_server.front.answer.confidence import confidence
from seqserve_server.front.answer.engine_call import EngineCall
from seqserve_server.front.answer.kept_text import keep, lacks
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.front.request.kept_spans import without
from seqserve_server.front.request.parts import Part, Source
from seqserve_server.front.request.prepared import Prepared
from seqserve_server.text.alphabet import script_of
from seqserve_server.text.tokenizer import Tokenizer

_STOP_REASONS = {
    StopReason.EOS: generation_pb2.STOP_REASON_EOS,
    StopReason.LENGTH: generation_pb2.STOP_REASON_LENGTH,
    StopReason.STOP_SEQUENCE: generation_pb2.STOP_REASON_STOP_SEQUENCE,
    StopReason.TIME_LIMIT: generation_pb2.STOP_REASON_TIME_LIMIT,
}


def floats(data: bytes) -> array[float]:
    """Decodes float32 values in this machine's byte order."""
    values = array("f")
    values.frombytes(data)
    return values


async def response_of(
    prepared: Prepared, source: Source, part: Part, call: EngineCall, writing: asyncio.Lock
) -> generation_pb2.GenerateResponse:
    """Writes the answer to a part of a source, once it is there.

    Args:
        prepared: The request.
        source: One of its sources.
        part: The part that was answered.
        call: The finished request to the engine.
        writing: Held while a large answer is written.
    """
    sent = prepared.sent_options
    if not (part.options.return_attention or sent.return_top_tokens):
        return await _written(prepared, source.text_of(part), part, call)
    async with writing:
        return await _written(prepared, source.text_of(part), part, call)


async def _written(
    prepared: Prepared, text: str, part: Part, call: EngineCall
) -> generation_pb2.GenerateResponse:
    """Writes an answer; other calls get their turn between hypotheses that take milliseconds."""
    model, sent, tokens = prepared.model, prepared.sent_options, part.tokens
    tokenizer = model.tokenizer
    attends, places = sent.return_attention, None
    answer = await _with_places(model, text, part, call) if part.kept else call.result()
    if sent.return_alignment or (part.kept and any(each.attention for each in answer.hypotheses)):
        places = SourcePlaces.of(part.lowered or text, tokens, prepared.affixes, tokenizer)
    response = generation_pb2.GenerateResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        source_tokens=len(tokens),
        generated_tokens=sum(len(hypothesis.token_ids) for hypothesis in answer.hypotheses),
        timings=_timings(call.timeline),
        source_warnings=source_warnings(
            without(part.lowered or text, part.kept), tokens, tokenizer
        ),
    )
    if attends:
        response.source_pieces.extend(tokenizer.source_tokens(tokens))
    for hypothesis in answer.hypotheses:
        if sent.replace_unknowns:
            hypothesis = _replaced(hypothesis, tokens, model)
        message = _hypothesis(hypothesis, tokenizer)
        message.unmet_terms.extend(_unmet_terms(part, hypothesis, message.text))
        if hypothesis.score is not None:
            message.confidence = confidence(
                hypothesis.score, hypothesis.token_ids, len(tokens), len(prepared.options.prefix)
            )
        rows = _rows(hypothesis, len(tokens)) if attends or places else []
        if attends:
            message.attention.extend(generation_pb2.TokenAttention(weights=row) for row in rows)
        if places and rows:
            message.alignment.CopyFrom(
                alignment_of(message.text, hypothesis.token_ids, rows, places, tokenizer)
            )
        _keep(message, text, part, sent)
        if part.lowered:
            write_in_capitals(message)
        response.hypotheses.append(message)
        if attends or places or hypothesis.top_tokens:
            await asyncio.sleep(0)
    return response


async def _with_places(model: LoadedModel, text: str, part: Part, call: EngineCall) -> Finished:
    """Returns an answer, with its attention where the model did not write what the source keeps."""
    answer = call.result()
    if any(hypothesis.attention for hypothesis in answer.hypotheses):
        return answer
    # A request whose time ran out in the queue has written nothing.
    written = [each.token_ids for each in answer.hypotheses if each.token_ids]
    texts = map(model.tokenizer.decode, written)
    if model.manifest.can_score and any(lacks(each, text, part.kept) for each in texts):
        # Without, what is kept stands where the source has it.
        with suppress(QueueFull):
            return await call.with_attention()
    return answer


def _unmet_terms(part: Part, hypothesis: Hypothesis, text: str) -> list[generation_pb2.Term]:
    """Lists the terms that the engine has not met, then those left out that the text lacks."""
    if not part.terms:
        return []
    left_out = part.terms[len(part.options.terms) :]
    unmet = [part.terms[index] for index in hypothesis.unmet_terms]
    return unmet + [term for term in left_out if term.target not in text]


def _keep(
    message: generation_pb2.Hypothesis,
    text: str,
    part: Part,
    sent: generation_pb2.GenerationOptions,
) -> None:
    """Puts what the part keeps into its answer, whose alignment goes unless it was requested."""
    if part.kept:
        keep(message, text, part.kept)
        if not sent.return_alignment:
            message.ClearField("alignment")


def _hypothesis(hypothesis: Hypothesis, tokenizer: Tokenizer) -> generation_pb2.Hypothesis:
    return generation_pb2.Hypothesis(
        # Without the stop sequence.
        text=tokenizer.decode(hypothesis.token_ids)[: hypothesis.text_length],
        tokens=tokenizer.tokens(hypothesis.token_ids),
        token_ids=hypothesis.token_ids,
        # Fields that are None stay unset.
        score=hypothesis.score,
        normalized_score=hypothesis.normalized_score,
        stop_reason=_STOP_REASONS[hypothesis.stop_reason],
        token_scores=hypothesis.token_scores,
        top_tokens=[_top_tokens(top, tokenizer) for top in hypothesis.top_tokens],
    )


def _top_tokens(top: TopTokens, tokenizer: Tokenizer) -> generation_pb2.TopTokens:
    return generation_pb2.TopTokens(
        tokens=tokenizer.tokens(top.token_ids),
        token_ids=top.token_ids,
        scores=top.log_probabilities,
    )


def _rows(hypothesis: Hypothesis, width: int) -> list[array[float]]:
    """Splits the attention of a hypothesis into one row of source weights per token."""
    weights = floats(hypothesis.attention)
    return [weights[begin : begin + width] for begin in range(0, len(weights), width)]


def _replaced(hypothesis: Hypothesis, source: list[int], model: LoadedModel) -> Hypothesis:
    """Replaces each unknown token by the source token that it attends to most.

    Source: Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation";
    by attention as in Jean et al. 2015, section 4.1. The end token of the source is left out.
    """
    unk = model.manifest.tokens.unk
    if unk not in hypothesis.token_ids:
        return hypothesis
    ids = list(hypothesis.token_ids)
    candidates = range(len(source) - 1)
    for index, weights in enumerate(_rows(hypothesis, len(source))):
        if ids[index] == unk and candidates:
            ids[index] = source[max(candidates, key=weights.__getitem__)]
    length = hypothesis.text_length
    if length is not None:
        # The same number of characters stays cut off: the stop sequence.
        decode = model.tokenizer.decode
        length += len(decode(ids)) - len(decode(hypothesis.token_ids))
    return hypothesis._replace(token_ids=ids, text_length=length)


def weights_of(data: bytes, heads: int, queries: int, keys: int) -> generation_pb2.AttentionWeights:
    """Builds the message of all layers and heads from float32 ``[L, H, Q, K]``."""
    weights = floats(data)
    return generation_pb2.AttentionWeights(
        layers=len(weights) // (heads * queries * keys),
        heads=heads,
        queries=queries,
        keys=keys,
        weights=weights,
    )


def _timings(timeline: Timeline) -> generation_pb2.Timings:
    arrived_s = timeline.arrived_s
    if not timeline.encode_began_s:
        # Its time limit passed in the queue.
        waited_ms = 1e3 * (timeline.finished_s - arrived_s)
        return generation_pb2.Timings(queue_ms=waited_ms, total_ms=waited_ms)
    return generation_pb2.Timings(
        queue_ms=1e3 * (timeline.encode_began_s - arrived_s),
        encode_ms=1e3 * (timeline.encode_ended_s - timeline.encode_began_s),
        decode_ms=1e3 * (timeline.finished_s - timeline.encode_ended_s),
        first_token_ms=1e3 * (timeline.first_token_s - arrived_s),
        total_ms=1e3 * (time.monotonic() - arrived_s),
    )


_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|<!--")
# Names and quotations may be in another script than the text around them.
_OTHER_SHARE = 0.3


def source_warnings(
    text: str, ids: Sequence[int], tokenizer: Tokenizer
) -> list[generation_pb2.SourceWarning]:
    """Looks for what the model cannot read.

    Args:
        text: The source.
        ids: Its tokens.
        tokenizer: That of the model.
    """
    alphabet, text = tokenizer.alphabet, tokenizer.spelled(text).text
    warnings = []
    if not alphabet.unknown_ids.isdisjoint(ids) and _lacks_letter(text, tokenizer):
        warnings.append(generation_pb2.SOURCE_WARNING_UNKNOWN_CHARACTERS)
    if not text.isascii() or "LATIN" not in alphabet.scripts:
        scripts = [script for script in map(script_of, text) if script]
        others = sum(script not in alphabet.scripts for script in scripts)
        if others and others >= _OTHER_SHARE * len(scripts):
            warnings.append(generation_pb2.SOURCE_WARNING_OTHER_SCRIPT)
    if "<" in text and _MARKUP.search(text):
        warnings.append(generation_pb2.SOURCE_WARNING_MARKUP)
    return warnings


def _lacks_letter(text: str, tokenizer: Tokenizer) -> bool:
    """Tells whether a character that the vocabulary lacks has a meaning of its own.

    Letters and symbols have; unusual marks of punctuation and spaces are rarely missed.
    """
    pieces = tokenizer.pieces(text)
    unknown = (
        text[slice(*place)]
        for id_, place in zip(pieces.ids, pieces.offsets, strict=True)
        if id_ in tokenizer.alphabet.unknown_ids
    )
    return any(unicodedata.category(each)[0] in "LS" for part in unknown for each in part)
