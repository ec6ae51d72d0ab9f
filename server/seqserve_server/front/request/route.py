"""Which models answer a request: the one that it names, or those of its languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from seqserve.language_codes import AUTO
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.template import Template
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.glossaries.folder import Glossaries
from seqserve_server.front.glossaries.glossary import Glossary
from seqserve_server.front.models.pairs import Legs
from seqserve_server.front.models.repository import Repository, ServedModel
from seqserve_server.front.request.detection import (
    MAX_CHARACTERS,
    Detected,
    LanguageDetector,
    best_of,
)
from seqserve_server.front.request.languages import Languages, languages_of
from seqserve_server.front.request.prepared import GenerateRequest
from seqserve_server.front.request.terms import glossary_of

Request: TypeAlias = (
    generation_pb2.GenerateRequest
    | generation_pb2.GenerateBatchRequest
    | generation_pb2.ScoreRequest
    | generation_pb2.AttentionRequest
    | generation_pb2.TokenizeRequest
    | generation_pb2.DetokenizeRequest
)


class Route(NamedTuple):
    """The models that answer a request, in their order; they stay loaded until the call ends."""

    models: list[ServedModel]
    legs: Legs
    """Their languages; empty where the request names a model, or no language."""
    detected: Detected | None = None
    """The language of the source, if it was detected."""
    glossary: Glossary | None = None
    """The glossary that the request names."""

    @classmethod
    async def of(
        cls,
        request: Request,
        repository: Repository,
        call: ServerCall,
        detector: LanguageDetector,
        glossaries: Glossaries,
    ) -> Route:
        """Finds the models of a request, and sets its source language if that is to be detected.

        Raises:
            InvalidRequest: No model serves the languages, the language cannot be told, or no
                glossary of the name is for them.
            ServiceError: As :meth:`ServerCall.resolve` and :meth:`LanguageDetector.detect`.
        """
        languages, detected = languages_of(request), None
        if languages and languages.source == AUTO:
            detected = await _detected(request, languages, repository, call, detector)
            request.options.source_language = detected.language  # type: ignore[union-attr]
            languages = languages._replace(source=detected.language)
        if request.model:
            languages = None
        legs = repository.pairs.legs(*languages) if languages else ()
        names = [leg.model for leg in legs] or [request.model]
        if len(legs) > 1 and request.version:
            reason = f"is {request.version}, but two models serve the languages; name none"
            raise InvalidRequest("version", reason)
        models = [call.resolve(repository, name, request.version) for name in names]
        glossary = None
        # Over a pivot there is none.
        if len(models) == 1 and isinstance(request, GenerateRequest):
            glossary = glossary_of(request.options, models[0].manifest, glossaries)
        return cls(models, legs, detected, glossary)

    @property
    def slots(self) -> int:
        """Parts that all of the models can run at once."""
        return min(model.engine.capacity.slots for model in self.models)

    def with_detected_language(
        self, response: generation_pb2.GenerateResponse
    ) -> generation_pb2.GenerateResponse:
        """Sets the language that was detected in a response, and returns it."""
        if self.detected:
            response.detected_language.language = self.detected.language
            response.detected_language.confidence = self.detected.confidence
        return response

    def only(self) -> ServedModel:
        """Returns the model of a call that has no use for two.

        Raises:
            InvalidRequest: No single model serves the languages.
        """
        if len(self.models) > 1:
            first, second = self.legs
            reason = (
                f"{second.target!r} is reached from {first.source!r} over {first.target!r} only;"
                f" this call is of one model: name {first.model} or {second.model}"
            )
            raise InvalidRequest("target_language", reason)
        return self.models[0]


def _beginning(texts: Iterable[str]) -> str:
    """Joins as many texts as the detector looks at."""
    joined = ""
    for text in texts:
        joined += f"{text[:MAX_CHARACTERS]}\n"
        if len(joined) >= MAX_CHARACTERS:
            break
    return joined


async def _detected(
    request: Request,
    languages: Languages,
    repository: Repository,
    call: ServerCall,
    detector: LanguageDetector,
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
    best = best_of(await detector.detect(text, [*codes, *target]), field)
    if best.language not in codes:
        reason = f"is auto, and the text is probably in {best.language!r:.80} already"
        raise InvalidRequest(field, f"{reason} ({best.confidence:.2f})")
    return best
