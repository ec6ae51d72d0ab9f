"""The code to copy makes the same call."""

from __future__ import annotations

import ast
import shlex
from typing import Any

import pytest
from google.protobuf.json_format import Parse

from seqserve.requests import generate_request
from seqserve.tls import TLS
from seqserve.v1 import generation_pb2
from seqserve_gateway.playground.call_code import call_code
from seqserve_gateway.playground.question import Question
from seqserve_gateway.upstream import UpstreamSettings

PLAIN = UpstreamSettings(target="localhost:50051")
GUARDED = UpstreamSettings(target="lab.example.com:443", tls=TLS(ca="my ca.pem"), token="secret")
QUESTION = Question(
    source='It\'s "good" 영화 $HOME `x` \\', options={"beam_size": 2, "terms": {"a'b": "c"}}
)


def called(code: str) -> tuple[list[Any], dict[str, Any]]:
    """Reads the arguments of client.generate."""
    calls = [each for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Call)]
    (call,) = (each for each in calls if ast.unparse(each.func) == "client.generate")
    keywords = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    return [ast.literal_eval(each) for each in call.args], keywords


def test_python_makes_the_same_call() -> None:
    code = call_code(PLAIN, QUESTION)["python"]
    assert called(code) == ([QUESTION.source], QUESTION.options)
    assert "Client('localhost:50051')" in code


def test_grpcurl_makes_the_same_call() -> None:
    words = shlex.split(call_code(PLAIN, QUESTION)["grpcurl"])
    assert words[:2] == ["grpcurl", "-plaintext"]
    assert words[-2:] == ["localhost:50051", "seqserve.v1.GenerationService/Generate"]
    request = Parse(words[words.index("-d") + 1], generation_pb2.GenerateRequest())
    assert request == generate_request(QUESTION.source, **QUESTION.options)


@pytest.mark.parametrize("language", ["python", "grpcurl"])
def test_token_stays_out_and_files_are_named(language: str) -> None:
    code = call_code(GUARDED, QUESTION)[language]
    assert "secret" not in code
    assert "SEQSERVE_TOKEN" in code
    assert "my ca.pem" in code
    assert "-plaintext" not in code
