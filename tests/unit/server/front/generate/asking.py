"""What a feature is made from, and what reads, routes and refuses a request, without a server."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.unit.server.front.echo import MAX_TARGET, byte_tokenizer, echo_model, manifest

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority
from seqserve_server.features import all_features
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.generate import answer as answering
from seqserve_server.front.generate.job import Job, Window
from seqserve_server.front.generate.languages import NO_AFFIXES
from seqserve_server.front.generate.options import compile_options
from seqserve_server.front.generate.records import Asked, Hop, Options, Part, Route, Source
from seqserve_server.front.generate.source import SourceReader
from seqserve_server.front.models.loaded_model import LoadedModel, ServedModel
from seqserve_server.front.overload.turns import run_now
from seqserve_server.text.glossary import Glossaries, Glossary
from seqserve_server.text.splitting import Span

DECODING = DecodingOptions(max_decoding_length=MAX_TARGET)
TOKENIZER = byte_tokenizer()
FEATURES = all_features(Glossaries())


def pair(source: str, target: str) -> Template:
    return Template(source_languages={source: ""}, target_languages={target: ""})


TO_GERMAN = echo_model(replace(manifest(), template=pair("en", "de")), TOKENIZER)
"""A model of English to German."""


def ids(text: str) -> tuple[int, ...]:
    """Tokenizes a text, without the end token."""
    return tuple(TOKENIZER.encode(text)[:-1])


def asked(
    decoding: DecodingOptions = DECODING,
    model: LoadedModel | None = None,
    glossary: Glossary | None = None,
    **options: Any,
) -> Asked:
    sent = generation_pb2.GenerationOptions(**options)
    return Asked(sent, decoding, NO_AFFIXES, model or echo_model(), glossary)


def part(text: str, decoding: DecodingOptions = DECODING) -> Part:
    return Part(Span(0, len(text)), text, text, [], decoding)


def compiled(model: ServedModel, **options: Any) -> Options:
    return compile_options(generation_pb2.GenerationOptions(**options), model, FEATURES)


def read(source: str, model: ServedModel, **options: Any) -> Source:
    """Reads a source as a request with these options does."""
    return run_now(SourceReader(model, compiled(model, **options)).read(source))


def job_of(
    model: ServedModel, options: Options, *sources: Source, call: ServerCall | None = None
) -> Job:
    return Job(
        route=Route((Hop(model, options),), Priority.NORMAL, is_bulk=False),
        sources=list(sources),
        call=call or ServerCall(path="", request_id=""),
        window=Window(1),
    )


def refusal(make: Callable[..., Any], *arguments: Any, **options: Any) -> InvalidRequest:
    """Calls what must refuse a request; gives the error, whose text is short."""
    with pytest.raises(InvalidRequest) as caught:
        make(*arguments, **options)
    assert len(str(caught.value)) < 300
    return caught.value


class AnsweringEngine:
    """Stands for an engine: answers each request at once with what a function gives."""

    pending = 0

    def __init__(self, answer: Callable[[Any], Event], timeline: Timeline | None = None) -> None:
        self.specs: list[Any] = []
        self._answer, self._timeline = answer, timeline or Timeline()

    def submit(self, spec: Any, receive: Receive) -> int:
        self.specs.append(spec)
        # A request for attention has the answer.
        receive(self._answer(spec), self._timeline if spec.answer is None else None)
        return len(self.specs)


def answered(
    model: ServedModel,
    engine: AnsweringEngine,
    options: Options,
    source: Source,
    call: ServerCall | None = None,
) -> generation_pb2.GenerateResponse:
    job = job_of(replace(model, engine=cast(Any, engine)), options, source, call=call)

    async def answer() -> generation_pb2.GenerateResponse:
        return await answering.answer(job, source)

    return asyncio.run(answer())
