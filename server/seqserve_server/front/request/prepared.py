"""A request that is checked, divided and tokenized: what remains is to answer it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Priority
from seqserve_server.front.call.answer_size import AnswerSize
from seqserve_server.front.call.fair_memory import MAX_WAIT_S
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.engine_client.refusals import QueueKey
from seqserve_server.front.glossaries.glossary import Glossary
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.front.request.languages import Affixes
from seqserve_server.front.request.options import priority_of, read_options
from seqserve_server.front.request.parts import Part, Source, SourceReader

GenerateRequest: TypeAlias = generation_pb2.GenerateRequest | generation_pb2.GenerateBatchRequest


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Sources for a model, and how to answer them."""

    model: LoadedModel
    sources: list[Source | ServiceError]
    """In the order of the request; an error stands for a source that cannot be answered."""
    sent_options: generation_pb2.GenerationOptions
    """The options as they were sent."""
    options: DecodingOptions
    """The same options for the engine."""
    affixes: Affixes
    """What the model reads and writes beside each source."""
    priority: Priority
    is_bulk: bool
    """Whether the sources are some of many of a call, which wait where a lone one is refused."""

    @property
    def is_repeatable(self) -> bool:
        """Whether equal requests have equal answers: those that do not draw a seed of their own."""
        is_seeded = self.sent_options.HasField("seed") or "seed" in self.model.manifest.generation
        return self.options.sampling is None or is_seeded

    @cached_property
    def answer_size(self) -> AnswerSize:
        """Bound of the answers to all sources, each counted as the answer to the longest part."""
        sources = [source for source in self.sources if isinstance(source, Source)]
        parts = [part for source in sources for part in source.parts]
        keeps = any(part.kept for part in parts)
        options = replace(self.options, return_attention=True) if keeps else self.options
        # A glossary may add to those that were sent.
        terms = [self.sent_options.terms, *(part.terms for part in parts)]
        return AnswerSize.generated(
            options,
            source_tokens=max((len(part.tokens) for part in parts), default=0),
            token_bytes=self.model.tokenizer.token_bytes,
            term_bytes=max(map(_term_bytes, terms), key=sum),
            sources=len(parts),
            text_bytes=sum(len(source.text.encode()) for source in sources if source.is_divided),
            kept_bytes=max((part.kept_bytes for part in parts), key=sum, default=[]),
        )

    async def reserve(self, size: AnswerSize, request: GenerateRequest, call: ServerCall) -> None:
        """Waits until there is memory for the answers.

        Raises:
            ServiceError: As :meth:`ServerCall.reserve`.
        """
        sources = (source for source in self.sources if isinstance(source, Source))
        await call.reserve(
            size,
            request,
            max_wait_s=_max_wait_s(self.options, is_bulk=self.is_bulk),
            held_bytes=sum(source.held_bytes for source in sources),
        )

    def spec(self, part: Part, call: ServerCall, *, streamed: bool, is_bulk: bool) -> GenerateSpec:
        """Builds the engine's request for a part."""
        fields = call.spec_fields()
        if is_bulk:
            # A call of many requests is a flow of its own, which the client's other calls pass.
            fields["flow_id"] = fields["call_id"]
        return GenerateSpec(
            source=part.tokens,
            options=part.options,
            draft=part.draft,
            streamed=streamed,
            priority=self.priority,
            start_token=self.affixes.start_token,
            is_bulk=is_bulk,
            **fields,
        )


def _term_bytes(terms: Iterable[generation_pb2.Term]) -> list[int]:
    return [term.ByteSize() for term in terms]


async def prepare(
    request: GenerateRequest,
    model: LoadedModel,
    call: ServerCall,
    *,
    glossary: Glossary | None = None,
    is_bulk: bool = False,
) -> Prepared:
    """Reads a request, and waits until there is memory for its texts and for its answers.

    Args:
        request: A request for one source or for a batch.
        model: The model that answers it.
        call: The call that it came in; it holds the memory.
        glossary: The glossary that it names.
        is_bulk: Whether it is one of many requests of a call, as a batch always is.

    Raises:
        ServiceError: The model's queue is full, an option or a lone source is wrong, or as
            :meth:`ServerCall.reserve`. The error of a source of a batch stands for that source.
    """
    prepared = await read(request, model, call, glossary=glossary, is_bulk=is_bulk)
    await prepared.reserve(prepared.answer_size, request, call)
    return prepared


async def read(
    request: GenerateRequest,
    model: LoadedModel,
    call: ServerCall,
    *,
    options: generation_pb2.GenerationOptions | None = None,
    glossary: Glossary | None = None,
    is_bulk: bool = False,
) -> Prepared:
    """Reads a request as :func:`prepare` does, without memory for its answers.

    ``options`` replace the options of the request.
    """
    is_bulk = is_bulk or isinstance(request, generation_pb2.GenerateBatchRequest)
    priority = priority_of(request.priority)
    if not is_bulk:
        # First, so that a refusal costs little.
        check_refusals(model, priority, call)
    sent = request.options if options is None else options
    converted = read_options(sent, model)
    reader = SourceReader(model, converted, sent.terms, glossary)
    max_wait_s = _max_wait_s(converted.decoding, is_bulk=is_bulk)
    return Prepared(
        model=model,
        sources=await _sources(request, reader, call, max_wait_s),
        sent_options=sent,
        options=converted.decoding,
        affixes=converted.affixes,
        priority=priority,
        is_bulk=is_bulk,
    )


def check_refusals(model: LoadedModel, priority: Priority, call: ServerCall) -> None:
    """Refuses a request that the model's engine would refuse, as it did the last ones.

    Raises:
        QueueFull: The queue is full.
    """
    model.engine.refusals.check(QueueKey(call.client_id, call.connection, priority))


def _max_wait_s(options: DecodingOptions, *, is_bulk: bool) -> float:
    # Many requests of a call wait where a lone one is refused.
    return math.inf if is_bulk else min(MAX_WAIT_S, options.time_limit_s)


async def _sources(
    request: GenerateRequest, reader: SourceReader, call: ServerCall, max_wait_s: float
) -> list[Source | ServiceError]:
    if isinstance(request, generation_pb2.GenerateRequest):
        steps = reader.read(request.source)
        length = len(request.source)
        return [await call.read(steps, request, length, max_wait_s=max_wait_s)]
    texts = request.sources
    length = sum(map(len, texts))
    return await call.read(reader.read_all(texts), request, length, max_wait_s=max_wait_s)
