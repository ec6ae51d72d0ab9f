"""Which models answer a request: the one that it names, or those of its languages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from seqserve.language_codes import AUTO
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.template import Template
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.request import Priority
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.engine_client.refusals import QueueKey
from seqserve_server.front.generate.detection import (
    MAX_CHARACTERS,
    Detected,
    LanguageDetector,
)
from seqserve_server.front.generate.options import compile_options, divide_options
from seqserve_server.front.generate.records import GenerateRequest, Hop, Route
from seqserve_server.front.glossaries.folder import Glossaries
from seqserve_server.front.glossaries.glossary import Glossary
from seqserve_server.front.models.loaded_model import LoadedModel, ServedModel
from seqserve_server.front.models.pairs import Legs
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


class Directory(NamedTuple):
    """What the requests of a server are routed by."""

    repository: Repository
    detector: LanguageDetector
    glossaries: Glossaries


async def resolve(
    request: GenerateRequest, directory: Directory, call: ServerCall, *, is_bulk: bool = False
) -> Route:
    """Finds the models of a request, and sets its source language if that is to be detected."""
    models, legs, detected = await _models(request, directory, call)
    if len(models) == 1:
        return route_to(
            models[0], request, directory.glossaries, call, is_bulk=is_bulk, detected=detected
        )
    of_first, of_second = divide_options(request.options, *legs)
    priority, is_bulk = _urgency(request, call, models, is_bulk=is_bulk)
    hops = (
        Hop(models[0], compile_options(of_first, models[0]), legs[0]),
        Hop(models[1], compile_options(of_second, models[1]), legs[1]),
    )
    return Route(hops, priority, is_bulk, detected)


def route_to(
    model: LoadedModel,
    request: GenerateRequest,
    glossaries: Glossaries,
    call: ServerCall,
    *,
    is_bulk: bool = False,
    detected: Detected | None = None,
) -> Route:
    """Routes a request to a model, as :func:`resolve` does."""
    options = request.options
    glossary = glossary_of(options, model.manifest, glossaries)
    priority, is_bulk = _urgency(request, call, [model], is_bulk=is_bulk)
    hop = Hop(model, compile_options(options, model, glossary))
    return Route((hop,), priority, is_bulk, detected)


def _urgency(
    request: GenerateRequest, call: ServerCall, models: Sequence[LoadedModel], *, is_bulk: bool
) -> tuple[Priority, bool]:
    """Returns the priority, and whether it is one of many; refuses one that an engine would."""
    priority = priority_of(request.priority)
    is_bulk = is_bulk or isinstance(request, generation_pb2.GenerateBatchRequest)
    if not is_bulk:
        # Before the options and the texts are read, so that a refusal costs little.
        key = QueueKey(call.client_id, call.connection, priority)
        for model in models:
            model.engine.refusals.check(key)
    return priority, is_bulk


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


def priority_of(priority: int) -> Priority:
    """Converts the priority of a request; unspecified is normal."""
    try:
        return _PRIORITIES[priority]
    except KeyError:
        reason = f"{priority} is not known to this server; it knows NORMAL and LOW"
        raise InvalidRequest("priority", reason) from None


async def _models(
    request: Request, directory: Directory, call: ServerCall
) -> tuple[list[ServedModel], Legs, Detected | None]:
    repository = directory.repository
    languages, detected = _languages(request), None
    if languages and languages.source == AUTO:
        detected = await _detected(request, languages, directory, call)
        request.options.source_language = detected.language  # type: ignore[union-attr]
        languages = languages._replace(source=detected.language)
    if request.model:
        languages = None
    legs = repository.pairs.legs(*languages) if languages else ()
    names = [leg.model for leg in legs] or [request.model]
    if len(legs) > 1 and request.version:
        reason = f"is {request.version}, but two models serve the languages; name none"
        raise InvalidRequest("version", reason)
    return [call.resolve(repository, name, request.version) for name in names], legs, detected


class _Languages(NamedTuple):
    """The languages that a request names."""

    source: str
    target: str
    section: str
    """What comes before the names of their fields: ``options.`` or nothing."""


def _languages(request: Any) -> _Languages | None:
    has_options = "options" in request.DESCRIPTOR.fields_by_name
    holder, section = (request.options, "options.") if has_options else (request, "")
    source = getattr(holder, "source_language", "")
    target = getattr(holder, "target_language", "")
    return _Languages(source, target, section) if source or target else None


def glossary_of(
    options: generation_pb2.GenerationOptions, manifest: Manifest, glossaries: Glossaries
) -> Glossary | None:
    """Finds the glossary that a request names, for its languages or those of its model."""
    if not options.glossary:
        return None
    template = manifest.template or Template()
    source, target = (
        getattr(options, f"{role}_language") or (next(iter(known)) if len(known) == 1 else "")
        for role, known in template.languages.items()
    )
    return glossaries.find(options.glossary, source, target)


def _beginning(texts: Iterable[str]) -> str:
    joined = ""
    for text in texts:
        joined += f"{text[:MAX_CHARACTERS]}\n"
        if len(joined) >= MAX_CHARACTERS:
            break
    return joined


async def _detected(
    request: Request, languages: _Languages, directory: Directory, call: ServerCall
) -> Detected:
    """Detects the language of the sources among those that the models of a request read.

    The target language is compared, too: a text that is in it already is no other language.
    """
    field = f"{languages.section}source_language"
    if isinstance(request, generation_pb2.GenerateRequest):
        text = request.source
    elif isinstance(request, generation_pb2.GenerateBatchRequest):
        text = _beginning(request.sources)
    else:
        reason = "is auto, which is for calls that generate; DetectLanguage tells the language"
        raise InvalidRequest(field, reason)
    repository, detector = directory.repository, directory.detector
    detector.check()
    if request.model:
        manifest = call.resolve(repository, request.model, request.version).manifest
        codes = list((manifest.template or Template()).source_languages)
    else:
        codes = repository.pairs.sources()
    if not codes:
        raise InvalidRequest(field, "is auto, but no model that may answer declares its languages")
    if not text.strip():
        raise InvalidRequest("source", "is empty")
    target = [languages.target] if languages.target else []
    found = await detector.detect(text, [*codes, *target])
    if not found:
        raise InvalidRequest(field, "is auto, but the text does not tell its language; name it")
    best = found[0]
    if best.language not in codes:
        reason = f"is auto, and the text is probably in {best.language!r:.80} already"
        raise InvalidRequest(field, f"{reason} ({best.confidence:.2f})")
    return best
