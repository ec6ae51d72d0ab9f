"""OpenAI's ``/v1/completions``: the prompt is the source, and the completion is its target.

Source: the public description of the API, https://platform.openai.com/docs/api-reference, and what
its SDK sends.
"""

import json
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from starlette.responses import JSONResponse, Response

from seqserve.arguments import GenerateOptions
from seqserve.errors import CallError
from seqserve.results import Hypothesis, Result, StopReason
from seqserve_gateway import RESOURCES
from seqserve_gateway.call import Call
from seqserve_gateway.endpoint import Endpoint, Form, Streamed
from seqserve_gateway.failure import Failure, refusal
from seqserve_gateway.fields import Fields
from seqserve_gateway.messages import known, object_of
from seqserve_gateway.translation import texts_of

_OPENAPI: dict[str, Any] = json.loads((RESOURCES / "openai.json").read_text("utf-8"))
_FIELDS: dict[str, Any] = _OPENAPI["components"]["schemas"]["OpenAI.Completion"]["properties"]
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
    and name not in {*_FIELDS, *_NAMES, "version", "priority"} - {"beam_size"}
}
"""Options of the server that OpenAI's API lacks; the others have their name there."""
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed")
_REFUSED = {
    "echo": "the prompt is no part of the text that a model here writes",
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
_BYTES_OF_ANSWER, _BYTES_OF_LOGPROBS = 4, 40
"""Memory that a byte of a body takes for each answer, and for each column of log-probabilities."""
_NO_CHAT = "the models here read one text, not a conversation; send it as prompt to /v1/completions"


@dataclass(frozen=True, slots=True)
class _Task:
    """What a request asks for."""

    prompts: Sequence[str]
    options: GenerateOptions
    count: int
    """Choices for each prompt."""
    has_logprobs: bool
    has_usage: bool
    """Whether a stream ends with it."""

    def completed(self, result: Result) -> dict[str, Any]:
        """Returns the choices of a prompt, and what they count."""
        choices = []
        for rank, text in enumerate(texts_of(result)[: self.count]):
            parts = _parts_of(result, rank)
            is_long = any(each.stop_reason in _LENGTHS for each in parts)
            logprobs = _logprobs(parts) if self.has_logprobs else None
            choices.append(_choice(text, logprobs, "length" if is_long else "stop"))
        counts = (result.source_tokens, result.generated_tokens)
        return {"model": result.model, "choices": choices, "counts": counts}


async def _complete(call: Call) -> Response:
    call.check_json()
    fields = _checked(object_of(call.json))
    task = _task_of(fields)
    best, columns = task.options.get("num_hypotheses") or 1, 1 + fields.get("logprobs", -1)
    call.take_memory((_BYTES_OF_ANSWER + _BYTES_OF_LOGPROBS * columns) * best * len(call.body))
    head = {
        "id": f"cmpl-{call.request_id}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": fields.get("model", ""),
    }
    if fields.get("stream"):
        return Streamed(_events(call, task, head), "text/event-stream")
    done = await call.generate_all(task.prompts, task.completed, **task.options)
    choices = [choice for each in done for choice in each["choices"]]
    numbered = [{**choice, "index": index} for index, choice in enumerate(choices)]
    head["model"] = done[0]["model"]
    return JSONResponse({**head, "choices": numbered, "usage": _usage(done)})


async def _events(call: Call, task: _Task, head: dict[str, Any]) -> AsyncGenerator[str, None]:
    # One prompt after the other. Only the best choice of each grows; the others come whole.
    done: list[dict[str, Any]] = []
    has_begun = False
    usage = {"usage": None} if task.has_usage else {}
    try:
        for number, prompt in enumerate(task.prompts):
            stream = call.client.stream(prompt, timeout_s=call.left_s, **task.options)
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    choices = [_choice(piece.text)] if piece.text else []
                    if piece.result is not None:
                        done.append(task.completed(piece.result))
                        best, *others = done[-1]["choices"]
                        choices = [{**best, "text": ""}, *others]
                    for rank, choice in enumerate(choices, number * task.count):
                        has_begun = True
                        yield _event({**head, "choices": [{**choice, "index": rank}], **usage})
        if task.has_usage:
            yield _event({**head, "choices": [], "usage": _usage(done)})
        yield "data: [DONE]\n\n"
    except CallError as error:
        if has_begun:
            yield _event(_error_facts(Failure.of(error).named_by(FORM.names)))
        raise


def _event(facts: dict[str, Any]) -> str:
    return f"data: {json.dumps(facts, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def _refuse_chat(call: Call) -> Response:
    raise Failure("INVALID_ARGUMENT", _NO_CHAT)


def _checked(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that have a value, of the types and within the bounds of the schema."""
    fields = {name: value for name, value in body.items() if value is not None}
    for name, value in fields.items():
        if name in _OWN:
            continue
        if (schema := _FIELDS.get(name)) is None:
            raise refusal(name[:80], f"there is no such field{known(name, [*_FIELDS, *_OWN])}")
        if name in _REFUSED and value:
            raise refusal(name, f"is not supported: {_REFUSED[name]}; leave it out")
        if (kind := schema.get("type")) is None:
            # The prompt and the stops, of which there may be one or several.
            Fields(fields).texts(name)
            continue
        types, words = _TYPES[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise refusal(name, f"is not {words}")
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        if isinstance(value, int | float) and not low <= value <= high:
            raise refusal(
                name, f"must be {low} to {high}" if high < math.inf else f"is below {low}"
            )
    return fields


def _task_of(fields: dict[str, Any]) -> _Task:
    texts, extras = Fields(fields), fields.get("stream_options", {})
    if extras and not (fields.get("stream") and [*extras] == ["include_usage"]):
        raise refusal("stream_options", "has include_usage alone, where stream is true")
    if not (prompts := texts.texts("prompt")):
        raise refusal("prompt", "is an empty array")
    options: dict[str, Any] = {name: fields[name] for name in fields if name in _OWN}
    options |= _model_of(fields.get("model", ""))
    options["max_decoding_length"] = fields.get("max_tokens")
    options["stop_sequences"] = texts.texts("stop") if texts.has("stop") else None
    count = fields.get("n", 1)
    if (best := fields.get("best_of", count)) < count:
        raise refusal("best_of", f"is {best}, fewer than n, which is {count}")
    sampling = _sampling(fields)
    options |= dict.fromkeys(_SAMPLING) | sampling
    if sampling:
        options["num_hypotheses"] = best
    elif best > 1:
        options |= {"num_hypotheses": count, "beam_size": fields.get("beam_size", best)}
    has_logprobs = "logprobs" in fields
    if has_logprobs:
        options |= {"return_token_scores": True, "return_top_tokens": fields["logprobs"]}
    # Where nothing is ranked or told, steps without scores are cheaper.
    options["return_scores"] = best > 1 or has_logprobs
    has_usage = extras.get("include_usage") is True
    return _Task(prompts, cast(GenerateOptions, options), count, has_logprobs, has_usage)


def _sampling(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of sampling; none without it, because any of them turns it on."""
    sampling = {name: fields[name] for name in _SAMPLING if name in fields}
    temperature = fields.get("temperature")
    # Clients send a top_p of 1 where they mean nothing by it.
    chosen = sampling.keys() - {"seed", *(["top_p"] if fields.get("top_p") == 1 else [])}
    return sampling if chosen and temperature != 0 else {}


def _model_of(model: str) -> GenerateOptions:
    name, _, version = model.rpartition("/")
    if name and version.isascii() and version.isdecimal() and len(version) < 10:
        return {"model": name, "version": int(version)}
    return {"model": model}


def _choice(text: str, logprobs: Any = None, finish_reason: str | None = None) -> dict[str, Any]:
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish_reason}


def _parts_of(result: Result, rank: int) -> list[Hypothesis]:
    if not result.segments:
        return [result.hypotheses[rank]]
    parts = (segment.hypotheses for segment in result.segments if segment.hypotheses)
    return [each[rank if rank < len(each) else 0] for each in parts]


def _logprobs(parts: Sequence[Hypothesis]) -> dict[str, Any]:
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


def _usage(done: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    read, written = map(sum, zip(*(each["counts"] for each in done), strict=True))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _error_facts(failure: Failure) -> dict[str, Any]:
    kinds = {429: "rate_limit_error"}
    kind = "server_error" if failure.status >= 500 else kinds.get(failure.status)
    facts = {
        "message": failure.details,
        "type": kind or "invalid_request_error",
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
