"""A fake server that translates pairs of languages, behind a gateway."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve.language_codes import folded
from seqserve.v1 import generation_pb2, model_pb2
from seqserve_gateway.app import FORMS

PAIR = {"source": "en", "target": "de"}
CONFIDENCE = 0.875
"""Of every language that is detected."""


def _failure(code: str, message: str, field: str = "") -> generation_pb2.Failure:
    number = grpc.StatusCode[code].value[0]
    return generation_pb2.Failure(code=number, message=message, field=field)


_NO_SCORER = _failure("FAILED_PRECONDITION", "the model has no scorer.onnx")
_QUOTA_USED = _failure("RESOURCE_EXHAUSTED", "the quota of 5 tokens a day is used")
_PAIR = "options.glossary: is of one pair of languages"
_NO_GLOSSARY = _failure("INVALID_ARGUMENT", _PAIR, "options.glossary")
_FORMS = "options.formality: is less, and there are no forms"
_NO_FORMS = _failure("INVALID_ARGUMENT", _FORMS, "options.formality")


class Translator(FakeServer):
    """Upper-cases texts of its pairs of languages. Texts with ö are German, with 가 Korean.

    Attributes:
        pairs: What it lists and translates.
        has_scorer: Whether it aligns what it writes.
        has_tokens: Whether it refuses every token.
        glossaries: What it lists; each has one entry, ``a`` as ``b``.
        detecting: Makes each detection wait for others.
        usages: What it says that its callers have used.
        is_beyond_quota: Whether it refuses to translate for an hour.
        listings: How often it has listed its glossaries.
        detections: The requests to detect a language.
    """

    def __init__(self, *pairs: str) -> None:
        """Takes pairs, such as ``"en-de"``."""
        super().__init__()
        self.pairs = [pair.split("-") for pair in pairs]
        self.has_scorer = True
        self.has_tokens = False
        self.glossaries: list[model_pb2.Glossary] = []
        self.detecting: threading.Barrier | None = None
        self.usages: list[model_pb2.Usage] = []
        self.is_beyond_quota = False
        self.listings = 0
        self.detections: list[generation_pb2.DetectLanguageRequest] = []

    def Generate(self, request: Any, context: Any) -> Any:
        if self.is_beyond_quota:
            info = error_details_pb2.ErrorInfo(reason="QUOTA_USED", domain="seqserve")
            delay = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=3600))
            _abort(context, _QUOTA_USED, info, delay)
        if failure := self._failure(request.options):
            _abort(context, failure)
        return super().Generate(request, context)

    def _outcome(self, request: Any, context: Any) -> Any:
        if failure := self._failure(request.options):
            self.requests.append(request)
            return generation_pb2.Outcome(failure=failure)
        return super()._outcome(request, context)

    def DetectLanguage(self, request: Any, context: Any) -> Any:
        self._note_metadata(context)
        self.detections.append(request)
        if self.detecting is not None:
            self.detecting.wait()
        code = "de" if "ö" in request.text else "ko" if "가" in request.text else "en"
        codes = list(request.languages) or [source for source, _ in self.pairs]
        return generation_pb2.DetectLanguageResponse(
            languages=[
                generation_pb2.DetectedLanguage(language=known, confidence=CONFIDENCE)
                for known in codes
                if folded(known).name == code
            ][:1]
        )

    def ListModels(self, request: Any, context: Any) -> Any:
        self._note_metadata(context)
        if self.has_tokens:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no valid token")
        pairs = [
            model_pb2.LanguagePair(source_language=source, target_language=target)
            for source, target in self.pairs
        ]
        return model_pb2.ListModelsResponse(pairs=pairs)

    def ListGlossaries(self, request: Any, context: Any) -> Any:
        self._note_metadata(context)
        self.listings += 1
        return model_pb2.ListGlossariesResponse(glossaries=self.glossaries)

    def GetUsage(self, request: Any, context: Any) -> Any:
        self._note_metadata(context)
        return model_pb2.GetUsageResponse(usages=self.usages)

    def GetGlossary(self, request: Any, context: Any) -> Any:
        asked = request.glossary, request.source_language
        [found] = [each for each in self.glossaries if (each.name, each.source_language) == asked]
        entries = [generation_pb2.Term(source="a", target="b")]
        return model_pb2.GetGlossaryResponse(glossary=found, entries=entries)

    def _failure(self, options: generation_pb2.GenerationOptions) -> generation_pb2.Failure | None:
        """Refuses as the server does what it does not translate, and what it cannot align."""
        codes = [folded(code).name for code in (options.source_language, options.target_language)]
        roles = zip(("source", "target"), codes, zip(*self.pairs, strict=True), strict=True)
        for role, code, known in roles:
            if code not in known:
                field = f"options.{role}_language"
                message = f"{field}: no model knows {code!r}; available: {', '.join(known)}"
                return _failure("INVALID_ARGUMENT", message, field)
        if options.glossary and options.source_language == "KO":
            return _NO_GLOSSARY
        if options.formality == "less":
            return _NO_FORMS
        return _NO_SCORER if options.return_alignment and not self.has_scorer else None


def _abort(context: Any, failure: generation_pb2.Failure, *infos: Message) -> None:
    status = status_pb2.Status(code=failure.code, message=failure.message)
    if failure.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=failure.field)
        infos = (error_details_pb2.BadRequest(field_violations=[violation]),)
    for info in infos:
        detail = any_pb2.Any()
        detail.Pack(info)
        status.details.append(detail)
    context.abort_with_status(rpc_status.to_status(status))


@asynccontextmanager
async def translating(*pairs: str) -> AsyncIterator[tuple[httpx.AsyncClient, Translator]]:
    """Opens every form in front of such a server."""
    server = Translator(*pairs)
    try:
        async with opened(gateway_of(server), *FORMS) as client:
            yield client, server
    finally:
        server.stop()
