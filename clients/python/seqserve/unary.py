"""The unary calls of ``seqserve.v1``: for each the request, and the function that reads its answer.

Both clients send them and differ only in how they wait. :mod:`seqserve._async` has the calls that
stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from seqserve import requests, responses
from seqserve._transport.method import Method
from seqserve.attention import AttentionResult
from seqserve.decoding import GenerateOptions
from seqserve.errors import CallError
from seqserve.results import Model, Result, ScoreResult
from seqserve.v1 import model_pb2

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class UnaryCall(Generic[R]):
    """A call with one request and one response."""

    method: Method
    request: Message
    read: Callable[[Any], R]
    """Converts the response; raises InternalError if it breaks the server's contract."""


def generate(source: str, options: GenerateOptions) -> UnaryCall[Result]:
    """Makes a call of Generate."""
    request = requests.generate_request(source, **options)
    return UnaryCall(Method.GENERATE, request, responses.result_of)


def generate_batch(
    sources: Sequence[str], options: GenerateOptions
) -> UnaryCall[list[Result | CallError]]:
    """Makes a call of GenerateBatch."""
    request = requests.generate_batch_request(sources, **options)
    total = len(sources)
    return UnaryCall(
        Method.GENERATE_BATCH, request, lambda response: responses.outcomes_of(response, total)
    )


def score(
    source: str, target: str, model: str | None, version: int | None
) -> UnaryCall[ScoreResult]:
    """Makes a call of Score."""
    request = requests.score_request(source, target, model, version)
    return UnaryCall(Method.SCORE, request, responses.score_of)


def attention(
    source: str, target: str | None, model: str | None, version: int | None
) -> UnaryCall[AttentionResult]:
    """Makes a call of Attention."""
    request = requests.attention_request(source, target, model, version)
    return UnaryCall(Method.ATTENTION, request, responses.attention_of)


def models() -> UnaryCall[list[Model]]:
    """Makes a call of ListModels."""
    return UnaryCall(Method.LIST_MODELS, model_pb2.ListModelsRequest(), responses.models_of)


def model(name: str | None, version: int | None) -> UnaryCall[Model]:
    """Makes a call of GetModel."""
    return _of_model(Method.GET_MODEL, requests.get_model_request(name, version))


def load_model(name: str | None, version: int | None) -> UnaryCall[Model]:
    """Makes a call of LoadModel."""
    return _of_model(Method.LOAD_MODEL, requests.load_model_request(name, version))


def unload_model(name: str | None, version: int) -> UnaryCall[Model]:
    """Makes a call of UnloadModel."""
    return _of_model(Method.UNLOAD_MODEL, requests.unload_model_request(name, version))


def set_traffic(name: str | None, weights: Mapping[int, int]) -> UnaryCall[list[Model]]:
    """Makes a call of SetTraffic."""
    request = requests.set_traffic_request(name, weights)
    return UnaryCall(Method.SET_TRAFFIC, request, responses.models_of)


def _of_model(method: Method, request: Message) -> UnaryCall[Model]:
    return UnaryCall(method, request, lambda response: responses.model_of(response.model))
