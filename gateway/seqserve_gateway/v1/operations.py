"""The calls of ``seqserve.v1`` that ``/v1`` has, and the paths on which it has them."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from seqserve._transport.connection import Method
from seqserve.v1 import generation_pb2, model_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call: its path, its method and its messages."""

    path: str
    method: Method
    request: type[Message]
    response: type[Message]
    """The message of an answer, or of each event of a stream."""
    is_stream: bool = False
    is_get: bool = False
    """Whether the fields of the request are in the path and the query, and no body is sent."""


OPERATIONS = (
    Operation(
        path="/v1/generate",
        method=Method.GENERATE,
        request=generation_pb2.GenerateRequest,
        response=generation_pb2.GenerateResponse,
    ),
    Operation(
        path="/v1/generate:stream",
        method=Method.GENERATE_STREAM,
        request=generation_pb2.GenerateRequest,
        response=generation_pb2.GenerateStreamResponse,
        is_stream=True,
    ),
    Operation(
        path="/v1/generate:batch",
        method=Method.GENERATE_BATCH,
        request=generation_pb2.GenerateBatchRequest,
        response=generation_pb2.GenerateBatchResponse,
    ),
    Operation(
        path="/v1/score",
        method=Method.SCORE,
        request=generation_pb2.ScoreRequest,
        response=generation_pb2.ScoreResponse,
    ),
    Operation(
        path="/v1/attention",
        method=Method.ATTENTION,
        request=generation_pb2.AttentionRequest,
        response=generation_pb2.AttentionResponse,
    ),
    Operation(
        path="/v1/tokenize",
        method=Method.TOKENIZE,
        request=generation_pb2.TokenizeRequest,
        response=generation_pb2.TokenizeResponse,
    ),
    Operation(
        path="/v1/detokenize",
        method=Method.DETOKENIZE,
        request=generation_pb2.DetokenizeRequest,
        response=generation_pb2.DetokenizeResponse,
    ),
    Operation(
        path="/v1/models",
        method=Method.LIST_MODELS,
        request=model_pb2.ListModelsRequest,
        response=model_pb2.ListModelsResponse,
        is_get=True,
    ),
    Operation(
        path="/v1/models/{model}",
        method=Method.GET_MODEL,
        request=model_pb2.GetModelRequest,
        response=model_pb2.GetModelResponse,
        is_get=True,
    ),
    Operation(
        path="/v1/glossaries",
        method=Method.LIST_GLOSSARIES,
        request=model_pb2.ListGlossariesRequest,
        response=model_pb2.ListGlossariesResponse,
        is_get=True,
    ),
    Operation(
        path="/v1/glossaries/{glossary}",
        method=Method.GET_GLOSSARY,
        request=model_pb2.GetGlossaryRequest,
        response=model_pb2.GetGlossaryResponse,
        is_get=True,
    ),
)
