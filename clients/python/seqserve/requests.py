"""Builds the requests of ``seqserve.v1`` from the arguments of calls.

Every function raises :class:`~seqserve.InvalidArgument` for a value that does not fit its field. A
field whose argument is optional stays unset if that is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from seqserve.decoding import BulkSource, GenerateOptions, ModelOptions, SourceOptions
from seqserve.errors import invalid_argument
from seqserve.fields import set_field, set_fields
from seqserve.v1 import generation_pb2, model_pb2


def generate_request(
    source: str, **options: Unpack[GenerateOptions]
) -> generation_pb2.GenerateRequest:
    """Builds the request of Generate and GenerateStream."""
    request = set_field(generation_pb2.GenerateRequest(), "source", source)
    decoding = generation_pb2.GenerationOptions()
    for name, value in options.items():
        if name not in GenerateOptions.__annotations__:
            raise TypeError(f"there is no option {name!r}; seqserve.GenerateOptions lists them")
        if value is not None:
            owner = request if name in request.DESCRIPTOR.fields_by_name else decoding
            set_field(owner, name, value)
    if decoding.ListFields():
        request.options.CopyFrom(decoding)
    return request


def generate_batch_request(
    sources: Sequence[str], **options: Unpack[GenerateOptions]
) -> generation_pb2.GenerateBatchRequest:
    """Builds the request of GenerateBatch; all sources have the same options."""
    one = generate_request("", **options)
    request = generation_pb2.GenerateBatchRequest(
        model=one.model, version=one.version, priority=one.priority
    )
    if one.HasField("options"):
        request.options.CopyFrom(one.options)
    return set_field(request, "sources", sources)


def generate_bulk_request(
    template: generation_pb2.GenerateRequest, id_: int, source: BulkSource
) -> generation_pb2.GenerateBulkRequest:
    """Builds one request of GenerateBulk from the request without its source.

    The source may bring options of its own, which take the place of those of the template.
    """
    request = generation_pb2.GenerateBulkRequest(id=id_, request=template)
    if isinstance(source, str):
        set_field(request.request, "source", source)
        return request
    if not (isinstance(source, tuple | list) and len(source) == 2):
        reason = f"{source!r:.80} is neither a text nor a pair of a text and its options"
        raise invalid_argument("source", reason)
    text, own = source
    changed = generate_request(text, **own)
    # A list would be appended to that of the template.
    for field, _ in changed.options.ListFields():
        request.request.options.ClearField(field.name)
    request.request.MergeFrom(changed)
    return request


def score_request(
    source: str, target: str, **options: Unpack[SourceOptions]
) -> generation_pb2.ScoreRequest:
    """Builds the request of Score."""
    request = set_field(generation_pb2.ScoreRequest(), "source", source)
    set_field(request, "target", target)
    return set_fields(request, **options)


def attention_request(
    source: str, target: str | None, **options: Unpack[SourceOptions]
) -> generation_pb2.AttentionRequest:
    """Builds the request of Attention."""
    request = set_field(generation_pb2.AttentionRequest(), "source", source)
    return set_fields(request, target=target, **options)


def tokenize_request(
    text: str, *, is_target: bool, **options: Unpack[SourceOptions]
) -> generation_pb2.TokenizeRequest:
    """Builds the request of Tokenize."""
    request = set_field(generation_pb2.TokenizeRequest(), "text", text)
    return set_fields(set_field(request, "is_target", is_target), **options)


def detokenize_request(
    token_ids: Sequence[int], **options: Unpack[ModelOptions]
) -> generation_pb2.DetokenizeRequest:
    """Builds the request of Detokenize."""
    request = set_field(generation_pb2.DetokenizeRequest(), "token_ids", token_ids)
    return set_fields(request, **options)


def get_model_request(name: str | None, version: int | None) -> model_pb2.GetModelRequest:
    """Builds the request of GetModel."""
    return set_fields(model_pb2.GetModelRequest(), model=name, version=version)


def load_model_request(name: str | None, version: int | None) -> model_pb2.LoadModelRequest:
    """Builds the request of LoadModel."""
    return set_fields(model_pb2.LoadModelRequest(), model=name, version=version)


def unload_model_request(name: str | None, version: int) -> model_pb2.UnloadModelRequest:
    """Builds the request of UnloadModel."""
    request = set_field(model_pb2.UnloadModelRequest(), "version", version)
    return set_fields(request, model=name)


def set_traffic_request(
    name: str | None, weights: Mapping[int, int]
) -> model_pb2.SetTrafficRequest:
    """Builds the request of SetTraffic."""
    request = set_field(model_pb2.SetTrafficRequest(), "weights", weights)
    return set_fields(request, model=name)
