"""The models that answer a request: the one that it names, or the models of its languages."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from seqserve.language_codes import AUTO
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.pairs import Legs
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import Draining, InvalidRequest
from seqserve_server.contract.limits import DETECTED_CHARACTERS
from seqserve_server.contract.request import Priority
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.engine_client.engine import QueueKey
from seqserve_server.front.generate.options import compile_options, divide_options
from seqserve_server.front.generate.records import Features, GenerateRequest, Hop, Route
from seqserve_server.front.models.loaded_model import LoadedModel, ServedModel
from seqserve_server.front.models.repository import Repository

Request: TypeAlias = (
    generation_pb2.GenerateRequest
    | generation_pb2.GenerateBatchRequest
    | generation_pb2.ScoreRequest
    | generation_pb2.AttentionRequest
    | generation_pb2.TokenizeRequest
    | generation_pb2.DetokenizeRequest
)

_PRIORITIES: dict[int, Priority] = {
    generation_pb2.PRIORITY_UNSPECIFIED: Priority.NORMAL,
    generation_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    generation_pb2.PRIORITY_LOW: Priority.LOW,
}

Detect: TypeAlias = Callable[
    [str, Iterable[str], str], Awaitable[list[generation_pb2.DetectedLanguage]]
]


class Directory(NamedTuple):
    """Models, languages and features by which a server routes requests."""

    repository: Repository
    detect: Detect
    features: Features


async def resolve(
    request: GenerateRequest, directory: Directory, call: ServerCall, *, is_bulk: bool = False
) -> Route:
    """Finds the models of a request, and sets its source language if that is to be detected."""
    models, legs, detected = await _models(request, directory, call)
    route = route_to(models, request, directory.features, call, legs=legs, is_bulk=is_bulk)
    return route._replace(detected=detected)


def route_to(
    models: Sequence[LoadedModel],
    request: GenerateRequest,
    features: Features,
    call: ServerCall,
    *,
    legs: Legs = (),
    is_bulk: bool = False,
) -> Route:
    """Routes a request to a model, or to the two of a pivot with their legs."""
    priority = priority_of(request.priority)
    is_bulk = is_bulk or isinstance(request, generation_pb2.GenerateBatchRequest)
    if not is_bulk:
        # Before the options and the texts are read, so that a refusal costs little.
        key = QueueKey(call.client_id, call.connection, priority)
        for model in models:
            model.engine.refusals.check(key)
    options = divide_options(request.options, *legs) if len(models) > 1 else (request.options,)
    hops = [
        Hop(model, compile_options(own, model, features), leg)
        for model, own, leg in zip(models, options, legs or (None,), strict=True)
    ]
    return Route(tuple(hops), priority, is_bulk)


async def single_model(request: Request, directory: Directory, call: ServerCall) -> ServedModel:
    """Finds the model of a call that has no use for two."""
    models, legs, _ = await _models(request, directory, call)
    if len(models) > 1:
        first, second = legs
        reason = (
            f"{second.target!r} is reached from {first.source!r} over {first.target!r} only;"
            f" this call is of one model: name {first.model} or {second.model}"
        )
        raise InvalidRequest("target_language", reason)
    return models[0]


async def find_model(
    name: str, version: int, repository: Repository, call: ServerCall
) -> ServedModel:
    """Finds the version that a call asks for; the call keeps it loaded until it ends.

    A call that asks again gets the version that it has, even if that is being unloaded.
    """
    wanted = name or repository.default
    own = (
        model
        for model in call.models
        if model.manifest.name == wanted and version in (0, model.manifest.version)
    )
    model = next(own, None)
    while model is None:
        entry = repository.choose(name, version, call.request_id)
        call.model, call.version = entry.name, entry.version
        if repository.is_closed:
            raise Draining
        if (model := entry.serving) is not None:
            model.calls.enter()
            call.models.append(model)
        else:
            await repository.load_on_call(entry, call.client_id)
    call.model, call.version = model.manifest.name, model.manifest.version
    return model


def priority_of(priority: int) -> Priority:
    """Converts the priority of a request; unspecified is normal."""
    try:
        return _PRIORITIES[priority]
    except KeyError:
        reason = f"{priority} is not known to this server; it knows NORMAL and LOW"
        raise InvalidRequest("priority", reason) from None


async def _models(
    request: Request, directory: Directory, call: ServerCall
) -> tuple[list[ServedModel], Legs, generation_pb2.DetectedLanguage | None]:
    repository, detected = directory.repository, None
    named = []
    if request.model:
        named = [await find_model(request.model, request.version, repository, call)]
    languages = _languages(request)
    if languages and languages.source == AUTO:
        if named:
            codes = list((named[0].manifest.template or Template()).source_languages)
        else:
            codes = repository.pairs.sources(languages.target)
        detected = await _detected(request, languages, codes, directory.detect, call.client_id)
        request.options.source_language = detected.language  # type: ignore[union-attr]
        languages = languages._replace(source=detected.language)
    if named:
        return named, (), detected
    legs = repository.pairs.legs(*languages) if languages else ()
    if len(legs) > 1 and request.version:
        reason = f"is {request.version}, but two models serve the languages; name none"
        raise InvalidRequest("version", reason)
    names = [leg.model for leg in legs] or [""]
    if len(names) > 1:
        chosen = [repository.choose(name, 0, call.request_id) for name in names]
        for model in filter(None, (entry.serving for entry in chosen)):
            # So it is not the one that makes room.
            model.calls.touch()
        # At the same time, before the call holds one of them.
        if coming := [entry for entry in chosen if entry.waits_for_call]:
            loads = (repository.load_on_call(entry, call.client_id) for entry in coming)
            await asyncio.gather(*loads)
    models = [await find_model(name, request.version, repository, call) for name in names]
    return models, legs, detected


class _Languages(NamedTuple):
    source: str
    target: str
    section: str
    """Prefix of their field names: ``options.`` or nothing."""


def _languages(request: Any) -> _Languages | None:
    has_options = "options" in request.DESCRIPTOR.fields_by_name
    holder, section = (request.options, "options.") if has_options else (request, "")
    source = getattr(holder, "source_language", "")
    target = getattr(holder, "target_language", "")
    return _Languages(source, target, section) if source or target else None


def _beginning(texts: Iterable[str]) -> str:
    joined = ""
    for text in texts:
        joined += f"{text[:DETECTED_CHARACTERS]}\n"
        if len(joined) >= DETECTED_CHARACTERS:
            break
    return joined


async def _detected(
    request: Request, languages: _Languages, codes: list[str], detect: Detect, caller: str
) -> generation_pb2.DetectedLanguage:
    """Detects the language of the sources among those of the models, and the target language."""
    field = f"{languages.section}source_language"
    if isinstance(request, generation_pb2.GenerateRequest):
        text = request.source
    elif isinstance(request, generation_pb2.GenerateBatchRequest):
        text = _beginning(request.sources)
    else:
        reason = "is auto, which is for calls that generate; DetectLanguage tells the language"
        raise InvalidRequest(field, reason)
    if not codes:
        raise InvalidRequest(field, "is auto, but no model that may answer declares its languages")
    if not text.strip():
        raise InvalidRequest("source", "is empty")
    target = [languages.target] if languages.target else []
    found = await detect(text, [*codes, *target], caller)
    if not found:
        raise InvalidRequest(field, "is auto, but the text does not tell its language; name it")
    best = found[0]
    if best.language not in codes:
        reason = f"is auto, and the text is probably in {best.language!r:.80} already"
        raise InvalidRequest(field, f"{reason} ({best.confidence:.2f})")
    return best
