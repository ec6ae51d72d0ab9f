import json
from dataclasses import replace
from typing import Any

import pytest
from httpx import AsyncClient, Response
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.test_v1 import facts_of
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve_gateway.admission import Bodies
from seqserve_gateway.completions import FORM

PATH = "/v1/completions"


def chunks_of(got: Response) -> list[Any]:
    *parts, end = [line[6:] for line in got.text.split("\n") if line.startswith("data: ")]
    assert end == "[DONE]"
    return [json.loads(part) for part in parts]


async def test_a_prompt_is_a_source_to_complete(client: AsyncClient, server: FakeServer) -> None:
    headers = {"x-request-id": "i-1", "authorization": "Bearer key"}
    got = await client.post(
        PATH, json={"model": "capitals", "prompt": "a b", "version": 2}, headers=headers
    )
    facts = got.json()
    [request] = server.requests
    assert facts_of(request) == {
        "model": "capitals",
        "version": 2,
        "source": "a b",
        "options": {"return_scores": False},
    }
    assert server.authorizations == ["Bearer key"]
    assert facts.pop("created") > 1_700_000_000
    choice = {"text": "A B", "index": 0, "logprobs": None, "finish_reason": "stop"}
    assert facts == {
        "id": "cmpl-i-1",
        "object": "text_completion",
        "model": "capitals",
        "choices": [choice],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


async def test_frame_of_vercels_sdk_is_no_source(client: AsyncClient, server: FakeServer) -> None:
    frame = "user:\na\n\nassistant:\nb\n\nassistant:\n"
    texts = ["user:\nb", "c\n\nuser:\nd\n\nassistant:\n", f"{frame}e"]
    got = await client.post(PATH, json={"prompt": frame, "stop": ["END", "\nuser:"]})
    await client.post(PATH, json={"prompt": [*texts, "\n"], "stop": "\nuser:"})
    # Not the SDK's, which has no message without its stop.
    await client.post(PATH, json={"prompt": frame, "stop": "user:"})
    assert got.json()["choices"][0]["text"] == "A\n\nASSISTANT:\nB"
    sources = ["a\n\nassistant:\nb", *texts, "\n", frame]
    assert [each.source for each in server.requests] == sources


async def test_choices_of_prompts_are_numbered(client: AsyncClient, server: FakeServer) -> None:
    got = await client.post(PATH, json={"prompt": ["a", "b"], "n": 2, "best_of": 4})
    choices = [(each["index"], each["text"]) for each in got.json()["choices"]]
    assert choices == [(0, "A"), (1, "A!"), (2, "B"), (3, "B!")]
    options = server.requests[0].options
    assert (options.num_hypotheses, options.beam_size) == (2, 4)
    assert got.json()["usage"]["prompt_tokens"] == 4


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0.5, "seed": 3, "n": 2}, {"temperature": 0.5, "seed": "3"}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        # Clients send these where they mean nothing by them.
        ({"temperature": 0, "top_p": 1, "seed": 3, "top_k": 4}, {}),
        ({"top_p": 1, "best_of": 1, "frequency_penalty": 0, "echo": False, "suffix": None}, {}),
        ({"max_tokens": 7, "stop": "x"}, {"max_decoding_length": 7, "stop_sequences": ["x"]}),
        ({"stop": ["x", "y"], "user": "u"}, {"stop_sequences": ["x", "y"]}),
        ({"target_language": "de", "beam_size": 3}, {"target_language": "de", "beam_size": 3}),
    ],
)
async def test_options_reach_the_server_by_its_names(
    client: AsyncClient, server: FakeServer, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    got = await client.post(PATH, json={"prompt": "a", **fields})
    assert got.status_code == 200, got.text
    options = facts_of(server.requests[0].options)
    if "temperature" in expected or "top_p" in expected:
        assert options.pop("num_hypotheses", 1) == fields.get("n", 1)
    options.pop("return_scores", None)
    assert options == expected


@pytest.mark.parametrize("stream", [False, True])
async def test_more_tokens_than_the_model_writes_are_no_error(
    client: AsyncClient, server: FakeServer, stream: bool
) -> None:
    server.max_decoding_length = 128
    got = await client.post(PATH, json={"prompt": "a b", "max_tokens": 256, "stream": stream})
    parts = chunks_of(got) if stream else [got.json()]
    assert "".join(part["choices"][0]["text"] for part in parts) == "A B"
    assert [each.options.max_decoding_length for each in server.requests] == [256, 0]
    wrong = await client.post(PATH, json={"prompt": "fail INVALID_ARGUMENT", "stream": stream})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "prompt")


async def test_log_probabilities_are_those_of_each_token(client: AsyncClient) -> None:
    got = await client.post(PATH, json={"prompt": "a b", "logprobs": 1})
    # The first token is one of a prefix, which has none.
    assert got.json()["choices"][0]["logprobs"] == {
        "tokens": ["A", "B"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [{"T0": -0.5, "A": None}, {"T0": -0.5, "B": -0.5}],
    }


async def test_stream_has_a_chunk_for_each_part_and_the_usage_last(client: AsyncClient) -> None:
    body = {"prompt": ["a b", "c"], "n": 2, "stream": True, "logprobs": 0}
    got = await client.post(PATH, json={**body, "stream_options": {"include_usage": True}})
    assert got.headers["content-type"].startswith("text/event-stream")
    *chunks, last = chunks_of(got)
    choices = [chunk["choices"][0] for chunk in chunks]
    texts = {
        index: [each["text"] for each in choices if each["index"] == index] for index in range(4)
    }
    assert texts == {0: ["A", " ", "B", ""], 1: ["A B!"], 2: ["C", ""], 3: ["C!"]}
    ends = [each["index"] for each in choices if each["finish_reason"] == "stop"]
    assert ends == [0, 1, 2, 3]
    assert choices[3]["logprobs"]["tokens"] == ["A", "B"]
    assert {chunk["usage"] for chunk in chunks} == {None} and last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert last["model"] == "capitals", "it is known once one has answered"


async def test_stream_that_fails_later_ends_with_an_error(client: AsyncClient) -> None:
    headers = {"x-request-timeout-s": "0.3"}
    body = {"prompt": "hang on", "stream": True}
    got = await client.post(PATH, json=body, headers=headers)
    last = got.text.strip().split("\n\n")[-1]
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (got.status_code, error["code"]) == (200, "deadline_exceeded")
    first = await client.post(PATH, json={"prompt": "fail NOT_FOUND", "stream": True})
    assert (first.status_code, first.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({}, "prompt", "is missing"),
        ({"prompt": []}, "prompt", "is an empty array"),
        ({"prompt": [1, 2]}, "prompt", "must be a text or an array of texts"),
        ({"prompt": "\ud800"}, "prompt", "half of a surrogate pair"),
        ({"prompt": "a", "echo": True}, "echo", "is not supported"),
        ({"prompt": "a", "suffix": "b"}, "suffix", "is not supported"),
        ({"prompt": "a", "logit_bias": {"5": 1}}, "logit_bias", "is not supported"),
        ({"prompt": "a", "presence_penalty": 0.1}, "presence_penalty", "is not supported"),
        ({"prompt": "a", "top_logprob": 1}, "top_logprob", "unknown field"),
        ({"prompt": "a", "n": True}, "n", "is not a whole number"),
        ({"prompt": "a", "n": 0}, "n", "must be 1 to 128"),
        ({"prompt": "a", "n": 3, "best_of": 2}, "best_of", "fewer than n"),
        ({"prompt": "a", "logprobs": 6}, "logprobs", "must be 0 to 5"),
        ({"prompt": "a", "temperature": "1"}, "temperature", "is not a number"),
        ({"prompt": "a", "temperature": float("inf")}, "temperature", "must be 0 to 2"),
        ({"prompt": "a", "max_tokens": 1 << 40}, "max_tokens", "must be 1 to 2147483647"),
        ({"prompt": "a", "seed": -1}, "seed", "must be 0 to"),
        ({"prompt": "a", "model": "\ud800"}, "model", "lone surrogate"),
        ({"prompt": "a", "stream_options": {"usage": True}}, "stream_options", "include_usage"),
        ({"prompt": "a", "beam_size": "4"}, "beam_size", "whole number"),
        ({"prompt": "a", "return_attention": True}, "return_attention", "unknown field"),
    ],
)
async def test_wrong_field_is_named_in_openais_shape(
    client: AsyncClient, server: FakeServer, fields: dict[str, Any], param: str, words: str
) -> None:
    body = json.dumps(fields).replace("Infinity", "1e999")
    got = await client.post(PATH, content=body, headers={"content-type": "application/json"})
    error = got.json()["error"]
    assert (got.status_code, error["type"]) == (400, "invalid_request_error"), got.text
    assert error["param"] == param and error["message"].startswith(f"{param}: ")
    assert words in error["message"] and server.requests == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param"),
    [({"best_of": 65}, "best_of"), ({"beam_size": 65}, "beam_size"), ({"n": 65}, "best_of")],
)
async def test_a_beam_that_is_too_wide_is_named_as_its_caller_did(
    client: AsyncClient, fields: dict[str, int], param: str, stream: bool
) -> None:
    got = await client.post(PATH, json={"prompt": "a", "stream": stream, **fields})
    error = json.loads(got.text.removeprefix("data: "))["error"]
    assert (error["param"], error["message"].partition(":")[0]) == (param, param)


async def test_refusals_of_the_server_have_openais_codes(client: AsyncClient) -> None:
    codes = {
        "UNAUTHENTICATED": (401, "invalid_request_error", "invalid_api_key"),
        "RESOURCE_EXHAUSTED": (429, "rate_limit_error", "rate_limit_exceeded"),
        # Clients would try 409 again.
        "FAILED_PRECONDITION": (400, "invalid_request_error", "failed_precondition"),
        "UNAVAILABLE": (503, "server_error", "unavailable"),
    }
    for code, expected in codes.items():
        got = await client.post(PATH, json={"prompt": f"fail {code}"})
        error = got.json()["error"]
        assert (got.status_code, error["type"], error["code"]) == expected


async def test_memory_for_many_choices_is_taken_as_they_come(server: FakeServer) -> None:
    gateway = replace(gateway_of(server), bodies=Bodies(2000, max_memory_bytes=0))
    async with opened(gateway, FORM) as client:
        answers = [
            await client.post(PATH, json={"prompt": ["a"] * 10, "n": n, "best_of": 64})
            for n in (64, 1)
        ]
    assert [answer.status_code for answer in answers] == [503, 200]


async def test_only_json_is_read_and_chat_says_what_to_call(client: AsyncClient) -> None:
    plain = await client.post(PATH, content='{"prompt": "a"}')
    chat = await client.post("/v1/chat/completions", json={"messages": []})
    assert plain.status_code == 415
    assert chat.status_code == 400 and "/v1/completions" in chat.json()["error"]["message"]
