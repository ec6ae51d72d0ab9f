"""OpenAI's ``/v1/completions``: the prompt is the source, and the completion is its target.

Source: the public description of the API, https://platform.openai.com/docs/api-reference, and what
its SDK sends.
"""

import json
import math
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from starlette.responses import JSONResponse, Response

from seqserve.arguments import GenerateOptions
from seqserve.errors import InvalidArgument
from seqserve.responses import result_of
from seqserve.results import Hypothesis, Piece, Result, StopReason
from seqserve.v1.generation_pb2 import GenerateResponse
from seqserve_gateway import RESOURCES
from seqserve_gateway.call import Call
from seqserve_gateway.endpoint import Endpoint, Form, Streamed
from seqserve_gateway.failure import Failure, compact, refusal
from seqserve_gateway.fields import Fields, known, object_of
from seqserve_gateway.translation import texts_of

_Facts = dict[str, Any]
_Reader = Callable[[Result], _Facts]
_OPENAPI: _Facts = json.loads((RESOURCES / "openai.json").read_text("utf-8"))
_FIELDS: _Facts = _OPENAPI["components"]["schemas"]["OpenAI.Completion"]["properties"]
_TYPES: dict[str, tuple[Any, str]] = {
    "string": (str, "a text"),
    "integer": (int, "a whole number"),
    "number": (int | float, "a number"),
    "boolean": (bool, "true or false"),
    "object": (dict, "an object"),
}
_NAMES = {
    "max_decoding_length": "max_tokens",
    "num_hypotheses": "n",
    "beam_size": "best_of",
    "stop_sequences": "stop",
    "return_top_tokens": "logprobs",
}
_OWN = {
    name
    for name in GenerateOptions.__annotations__
    if not name.startswith("return_")
    and name not in {*_FIELDS, *_NAMES, "priority"} - {"beam_size"}
}
"""Options of the server that OpenAI's API lacks; the others have their name there."""
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed")
_REFUSED = {
    "echo": "these models do not repeat the prompt",
    "suffix": "no model here fills a gap",
    "logit_bias": "suppress_tokens names tokens that are never generated",
    "frequency_penalty": "repetition_penalty is an option of the server",
    "presence_penalty": "repetition_penalty is an option of the server",
}
_LENGTHS = (StopReason.LENGTH, StopReason.TIME_LIMIT)
_CODES = {
    "UNAUTHENTICATED": "invalid_api_key",
    "NOT_FOUND": "model_not_found",
    "RESOURCE_EXHAUSTED": "rate_limit_exceeded",
}
_BYTES_OF_CHOICE, _BYTES_OF_TOKEN, _BYTES_OF_LOGPROB = 600, 20, 200
"""Memory for a choice, and for each of its tokens and their log-probabilities."""
# As Vercel's AI SDK writes one message, always with this stop; a text alone may look the same.
_FRAME, _STOP = re.compile(r"\Auser:\n(.*)\n\nassistant:\n\Z", re.DOTALL), "\nuser:"
_NO_CHAT = "the models here read one text, not a conversation; send it as prompt to /v1/completions"


async def _complete(call: Call) -> Response:
    call.check_json()
    fields = _checked(object_of(call.json))
    if "beam_size" in fields:
        call.names |= {name: "beam_size" for name in ("beam_size", "options.beam_size")}
    prompts, options = Fields(fields).texts("prompt"), _options_of(fields)
    if _STOP in (options.get("stop_sequences") or ()):
        prompts = [_FRAME.sub(r"\1", prompt) for prompt in prompts]
    if not prompts:
        raise refusal("prompt", "is an empty array")
    head = {
        "id": f"cmpl-{call.request_id}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": fields.get("model", ""),
    }
    count, columns = fields.get("n", 1), 1 + fields.get("logprobs", -1)
    completed = partial(_completed, count, columns > 0)
    if fields.get("stream"):
        if fields.get("stream_options", {}).get("include_usage"):
            # Every event has the field; only the last one knows the usage.
            head["usage"] = None
        events = _events(call, prompts, options, completed, head)
        return Streamed(events, lambda failure: _event(_error_facts(failure.named_by(call.names))))

    def needed(response: GenerateResponse) -> _Facts:
        # An answer may be much longer than its prompt.
        tokens = response.generated_tokens * (_BYTES_OF_TOKEN + _BYTES_OF_LOGPROB * columns)
        call.take_memory(_BYTES_OF_CHOICE * count + tokens)
        return completed(result_of(response))

    try:
        done = await call.generate_all(prompts, needed, **options)
    except InvalidArgument as error:
        done = await call.generate_all(prompts, needed, **_unlimited(options, error))
    choices = [choice for each in done for choice in each["choices"]]
    numbered = [{**choice, "index": index} for index, choice in enumerate(choices)]
    head["model"] = done[0]["model"]
    return JSONResponse({**head, "choices": numbered, "usage": _usage(done)})


async def _events(
    call: Call, prompts: Sequence[str], options: GenerateOptions, completed: _Reader, head: _Facts
) -> AsyncGenerator[str, None]:
    # One prompt after the other. Only the best choice of each grows; the others come whole.
    done: list[_Facts] = []
    first = 0
    for prompt in prompts:
        async with aclosing(_pieces(call, prompt, options)) as pieces:
            async for piece in pieces:
                choices = [_choice(piece.text)] if piece.text else []
                if piece.result is not None:
                    whole = completed(piece.result)
                    done.append(whole)
                    head["model"] = whole["model"]
                    best, *others = whole.pop("choices")
                    choices = [{**best, "text": ""}, *others]
                for index, choice in enumerate(choices, first):
                    yield _event({**head, "choices": [{**choice, "index": index}]})
        first += len(choices)
    if "usage" in head:
        yield _event({**head, "choices": [], "usage": _usage(done)})
    yield "data: [DONE]\n\n"


async def _pieces(call: Call, prompt: str, options: GenerateOptions) -> AsyncGenerator[Piece, None]:
    while True:
        stream = call.client.stream(prompt, timeout_s=call.left_s, **options)
        try:
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except InvalidArgument as error:
            options.update(_unlimited(options, error))


def _unlimited(options: GenerateOptions, error: InvalidArgument) -> GenerateOptions:
    """Drops a length above the model's limit, as libraries send 256; raises any other error."""
    if error.field != "options.max_decoding_length" or not options["max_decoding_length"]:
        raise error
    return {**options, "max_decoding_length": None}


def _event(facts: _Facts) -> str:
    return f"data: {compact(facts)}\n\n"


async def _refuse_chat(call: Call) -> Response:
    raise Failure("INVALID_ARGUMENT", _NO_CHAT)


def _checked(body: _Facts) -> _Facts:
    """Returns the fields that have a value, of the types and within the bounds of the schema."""
    fields = {name: value for name, value in body.items() if value is not None}
    for name, value in fields.items():
        # These are checked where they are read.
        if name in _OWN or name in ("prompt", "stop"):
            continue
        if (schema := _FIELDS.get(name)) is None:
            raise refusal(name[:80], f"unknown field{known(name, [*_FIELDS, *_OWN])}")
        if name in _REFUSED and value:
            raise refusal(name, f"is not supported: {_REFUSED[name]}; leave it out")
        types, words = _TYPES[schema["type"]]
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise refusal(name, f"is not {words}")
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        if isinstance(value, int | float) and not low <= value <= high:
            raise refusal(name, f"must be {low} to {high}")
    return fields


def _options_of(fields: _Facts) -> GenerateOptions:
    extras = fields.get("stream_options", {})
    if extras not in ({}, {"include_usage": False}, {"include_usage": True}):
        raise refusal("stream_options", "has include_usage alone")
    count: int = fields.get("n", 1)
    best: int = fields.get("best_of", count)
    if best < count:
        raise refusal("best_of", f"is {best}, fewer than n, which is {count}")
    options: _Facts = {name: fields[name] for name in fields if name in _OWN}
    options |= {"model": fields.get("model"), "max_decoding_length": fields.get("max_tokens")}
    if "stop" in fields:
        options["stop_sequences"] = Fields(fields).texts("stop")
    sampling = _sampling(fields)
    options |= dict.fromkeys(_SAMPLING) | sampling
    if sampling:
        options["num_hypotheses"] = best
    elif best > 1:
        options |= {"num_hypotheses": count, "beam_size": fields.get("beam_size", best)}
    if "logprobs" in fields:
        options |= {"return_token_scores": True, "return_top_tokens": fields["logprobs"]}
    # Where nothing is ranked or told, steps without scores are cheaper.
    options["return_scores"] = best > 1 or "logprobs" in fields
    return cast(GenerateOptions, options)


def _sampling(fields: _Facts) -> _Facts:
    """Returns the options of sampling; none if it is off, because any option turns it on."""
    sampling = {name: fields[name] for name in _SAMPLING if name in fields}
    # Clients send a top_p of 1 where they mean nothing by it.
    chosen = {name for name in sampling if (name, sampling[name]) != ("top_p", 1)} - {"seed"}
    return sampling if chosen and fields.get("temperature") != 0 else {}


def _completed(count: int, has_logprobs: bool, result: Result) -> _Facts:
    choices = []
    for rank, text in enumerate(texts_of(result)[:count]):
        parts = _parts_of(result, rank)
        is_long = any(each.stop_reason in _LENGTHS for each in parts)
        logprobs = _logprobs(parts) if has_logprobs else None
        choices.append(_choice(text, logprobs, "length" if is_long else "stop"))
    counts = (result.source_tokens, result.generated_tokens)
    return {"model": result.model, "choices": choices, "counts": counts}


def _choice(text: str, logprobs: Any = None, finish_reason: str | None = None) -> _Facts:
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish_reason}


def _parts_of(result: Result, rank: int) -> list[Hypothesis]:
    if not result.segments:
        return [result.hypotheses[rank]]
    parts = (segment.hypotheses for segment in result.segments if segment.hypotheses)
    return [each[rank if rank < len(each) else 0] for each in parts]


def _logprobs(parts: Sequence[Hypothesis]) -> _Facts:
    tokens = [token for part in parts for token in part.tokens]
    scores = [_finite(score) for each in parts for score in each.token_scores[: len(each.tokens)]]
    steps = [step for each in parts for step in each.top_tokens[: len(each.tokens)]]
    # Each step has its own token too, be it improbable.
    top = [
        {**{each.token: _finite(each.score) for each in step}, token: score}
        for step, token, score in zip(steps, tokens, scores, strict=False)
    ]
    return {"tokens": tokens, "token_logprobs": scores, "top_logprobs": top or None}


def _finite(score: float) -> float | None:
    # JSON has neither the NaN of a prefix nor the infinity of a token that is barred.
    return score if math.isfinite(score) else None


def _usage(done: Sequence[_Facts]) -> dict[str, int]:
    read, written = map(sum, zip(*(each["counts"] for each in done), strict=True))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _error_facts(failure: Failure) -> _Facts:
    kind = "rate_limit_error" if failure.status == 429 else "invalid_request_error"
    facts = {
        "message": failure.details,
        "type": "server_error" if failure.status >= 500 else kind,
        "param": failure.field or None,
        "code": _CODES.get(failure.code, failure.code.lower()),
    }
    return {"error": facts}


def _error(failure: Failure, request_id: str) -> Response:
    # Its SDK tries 409 again, which would not help.
    status = 400 if failure.status == 409 else failure.status
    return JSONResponse(_error_facts(failure), status)


FORM = Form(
    name="openai",
    endpoints=[
        Endpoint(path="/v1/completions", answer=_complete),
        Endpoint(path="/v1/chat/completions", answer=_refuse_chat),
    ],
    error=_error,
    names={
        "source": "prompt",
        **{f"options.{name}": _NAMES.get(name, name) for name in GenerateOptions.__annotations__},
        **_NAMES,
    },
    openapi=_OPENAPI,
)
