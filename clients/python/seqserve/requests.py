"""Builds the requests of ``seqserve.v1`` from the arguments of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from seqserve.decoding import GenerateOptions
from seqserve.fields import set_field, set_fields
from seqserve.v1 import generation_pb2, model_pb2


def generate_request(
    source: str, **options: Unpack[GenerateOptions]
) -> generation_pb2.GenerateRequest:
    """Builds the request of Generate and GenerateStream.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request, decoding = generation_pb2.GenerateRequest(), generation_pb2.GenerationOptions()
    set_field(request, "source", source)
    for name, value in options.items():
        if name not in GenerateOptions.__annotations__:
            raise TypeError(f"there is no option {name!r}; seqserve.GenerateOptions lists them")
        owner = request if name in request.DESCRIPTOR.fields_by_name else decoding
        set_fields(owner, **{name: value})
    if decoding.ListFields():
        request.options.CopyFrom(decoding)
    return request


def generate_batch_request(
    sources: Sequence[str], **options: Unpack[GenerateOptions]
) -> generation_pb2.GenerateBatchRequest:
    """Builds the request of GenerateBatch; all sources have the same options.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    one = generate_request("", **options)
    request = generation_pb2.GenerateBatchRequest(
        model=one.model, version=one.version, priority=one.priority
    )
    set_field(request, "sources", sources)
    if one.HasField("options"):
        request.options.CopyFrom(one.options)
    return request


def generate_bulk_request(
    template: generation_pb2.GenerateRequest, id_: int, source: str
) -> generation_pb2.GenerateBulkRequest:
    """Builds one request of GenerateBulk.

    Args:
        template: The request without its source.
        id_: Id that its answer repeats.
        source: Text to generate from.

    Raises:
        InvalidArgument: The source is not a text.
    """
    request = generation_pb2.GenerateBulkRequest(id=id_, request=template)
    set_field(request.request, "source", source)
    return request


def score_request(
    source: str, target: str, model: str | None, version: int | None
) -> generation_pb2.ScoreRequest:
    """Builds the request of Score; None leaves a field unset.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request = generation_pb2.ScoreRequest()
    set_field(request, "source", source)
    set_field(request, "target", target)
    set_fields(request, model=model, version=version)
    return request


def attention_request(
    source: str, target: str | None, model: str | None, version: int | None
) -> generation_pb2.AttentionRequest:
    """Builds the request of Attention; None leaves a field unset.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request = generation_pb2.AttentionRequest()
    set_field(request, "source", source)
    set_fields(request, target=target, model=model, version=version)
    return request


def get_model_request(name: str | None, version: int | None) -> model_pb2.GetModelRequest:
    """Builds the request of GetModel; None leaves a field unset.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request = model_pb2.GetModelRequest()
    set_fields(request, model=name, version=version)
    return request


def load_model_request(name: str | None, version: int | None) -> model_pb2.LoadModelRequest:
    """Builds the request of LoadModel; None leaves a field unset.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request = model_pb2.LoadModelRequest()
    set_fields(request, model=name, version=version)
    return request


def unload_model_request(name: str | None, version: int) -> model_pb2.UnloadModelRequest:
    """Builds the request of UnloadModel; without a name it means the default model.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request = model_pb2.UnloadModelRequest()
    set_fields(request, model=name)
    set_field(request, "version", version)
    return request


def set_traffic_request(
    name: str | None, weights: Mapping[int, int]
) -> model_pb2.SetTrafficRequest:
    """Builds the request of SetTraffic; without a name it means the default model.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request = model_pb2.SetTrafficRequest()
    set_fields(request, model=name)
    set_field(request, "weights", weights)
    return request
