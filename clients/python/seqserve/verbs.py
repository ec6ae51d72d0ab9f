"""What a client can ask for in one request: the request, and how its answer is read.

Both clients ask these; they differ only in how they wait. A stream, and a call with many requests,
are no verbs: see :mod:`seqserve.streams` and :mod:`seqserve.bulk`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from seqserve import requests, responses
from seqserve.attention import AttentionResult
from seqserve.decoding import GenerateOptions
from seqserve.errors import CallError
from seqserve.results import Model, Result, ScoreResult
from seqserve.transport import Method
from seqserve.v1 import model_pb2

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Question(Generic[R]):
    """One request, ready to be sent."""

    method: Method
    request: Message
    read: Callable[[Any], R]
    """Gives what the answer says, or raises InternalError where it says nothing sound."""


def generate(source: str, options: GenerateOptions) -> Question[Result]:
    """Asks for what is generated from one source."""
    request = requests.generate_request(source, **options)
    return Question(Method.GENERATE, request, responses.result_of)


def generate_batch(
    sources: Sequence[str], options: GenerateOptions
) -> Question[list[Result | CallError]]:
    """Asks for what is generated from each of many sources."""
    request = requests.generate_batch_request(sources, **options)
    total = len(sources)
    return Question(
        Method.GENERATE_BATCH, request, lambda answer: responses.outcomes_of(answer, total)
    )


def score(
    source: str, target: str, model: str | None, version: int | None
) -> Question[ScoreResult]:
    """Asks how probable a target is."""
    request = requests.score_request(source, target, model, version)
    return Question(Method.SCORE, request, responses.score_of)


def attention(
    source: str, target: str | None, model: str | None, version: int | None
) -> Question[AttentionResult]:
    """Asks what every layer and head attended to."""
    request = requests.attention_request(source, target, model, version)
    return Question(Method.ATTENTION, request, responses.attention_of)


def models() -> Question[list[Model]]:
    """Asks for every version of every model."""
    return Question(Method.LIST_MODELS, model_pb2.ListModelsRequest(), _models_of)


def model(name: str | None, version: int | None) -> Question[Model]:
    """Asks for one version of one model."""
    return Question(Method.GET_MODEL, requests.get_model_request(name, version), _model_of)


def load_model(name: str | None, version: int | None) -> Question[Model]:
    """Asks for a version to be loaded."""
    return Question(Method.LOAD_MODEL, requests.load_model_request(name, version), _model_of)


def unload_model(name: str | None, version: int) -> Question[Model]:
    """Asks for a version to be unloaded."""
    return Question(Method.UNLOAD_MODEL, requests.unload_model_request(name, version), _model_of)


def set_traffic(name: str | None, weights: Mapping[int, int]) -> Question[list[Model]]:
    """Asks for calls to be shared among versions."""
    return Question(Method.SET_TRAFFIC, requests.set_traffic_request(name, weights), _models_of)


def _model_of(answer: Any) -> Model:
    return responses.model_of(answer.model)


def _models_of(answer: Any) -> list[Model]:
    return [responses.model_of(model) for model in answer.models]
