"""What a call asks of a model, and how each of its sources is answered."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias, cast

from google.protobuf.message import Message

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest, ServiceError
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, Priority
from seqserve_server.front.answer.alignment import SourcePlaces
from seqserve_server.front.answer.engine_call import CachedCall, EngineCall
from seqserve_server.front.answer.joined import SegmentedAnswer
from seqserve_server.front.answer.response import response_of
from seqserve_server.front.call.answer_memory import MAX_WAIT_S
from seqserve_server.front.call.answer_size import AnswerSize
from seqserve_server.front.call.server_call import current
from seqserve_server.front.call.wire import Context
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.request.languages import Affixes, affixes_of
from seqserve_server.front.request.parts import MAX_SEGMENTS, Document, source_tokens
from seqserve_server.front.request.splitting import segmentation_of
from seqserve_server.front.request.terms import for_source

Text: TypeAlias = str | Document | ServiceError
"""A source, the segments of a source, or why it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A model, options for it, and what all sources of a call share."""

    model: ServedModel
    given: generation_pb2.GenerationOptions
    """The options as they were sent."""
    options: DecodingOptions
    """The same options for the engine."""
    priority: Priority
    context: Context
    writing: asyncio.Lock
    """Held while a large answer is written."""

    @property
    def affixes(self) -> Affixes:
        """What the model reads and writes beside each source."""
        languages = self.given.source_language, self.given.target_language
        return affixes_of(*languages, self.model.manifest, self.model.tokenizer)

    @property
    def is_repeatable(self) -> bool:
        """Whether equal requests have equal answers: those that do not draw a seed of their own."""
        is_seeded = self.given.HasField("seed") or "seed" in self.model.manifest.generation
        return self.options.sampling is None or is_seeded

    async def call(
        self, source: str, *, streamed: bool = False, is_bulk: bool = False
    ) -> EngineCall:
        """Prepares the request for one source; one of many waits where others fail.

        Raises:
            InvalidRequest: The source is empty or too long, or its terms do not fit.
        """
        tokens = await source_tokens(self.model, source, self.affixes)
        fields = current.get().spec_fields(self.context)
        if is_bulk:
            # A call of many requests is a flow of its own, which the client's other calls pass.
            fields["flow_id"] = fields["call_id"]
        spec = GenerateSpec(
            source=tokens,
            options=for_source(self.options, self.given.terms, source),
            streamed=streamed,
            priority=self.priority,
            start_token=self.affixes.start_token,
            is_bulk=is_bulk,
            **fields,
        )
        if self.model.answers is None or not self.is_repeatable:
            return EngineCall(self.model.engine, spec)
        return CachedCall(self.model, spec)

    async def document(self, source: str) -> Document | None:
        """Divides a source into segments, if that is asked for.

        Raises:
            InvalidRequest: The source is empty, too long, or has too many segments.
        """
        segmentation = segmentation_of(self.given, self.model.manifest)
        if segmentation is None:
            return None
        return await Document.read(source, segmentation, self.model, self.affixes)

    async def divided(self, sources: Sequence[str]) -> list[Text]:
        """Divides the sources of a batch, if that is asked for; an error is that of its source.

        Raises:
            InvalidRequest: They have too many segments together.
        """
        texts: list[Text] = []
        segments = 0
        for source in sources:
            try:
                text = await self.document(source) or source
            except ServiceError as error:
                texts.append(error)
                continue
            texts.append(text)
            segments += count_of(text) if isinstance(text, Document) else 0
            if segments > MAX_SEGMENTS:
                reason = f"have more than {MAX_SEGMENTS:,} segments together; send fewer in a call"
                raise InvalidRequest("sources", reason)
        return texts

    async def answer(self, source: str, *, is_bulk: bool = True) -> generation_pb2.GenerateResponse:
        """Answers one of many sources; it tries again after a refusal.

        Raises:
            ServiceError: It cannot be answered.
        """
        call = await self.call(source, is_bulk=is_bulk)
        await (call.finished_in_time() if is_bulk else call.finished())
        return await self.response(call, source)

    def segmented(self, document: Document, *, is_bulk: bool) -> SegmentedAnswer:
        """Prepares the answer to a text; its segments are as many sources of a call."""
        record = current.get()
        is_many = is_bulk or len(document.segments) > 1

        async def answer(source: str) -> generation_pb2.GenerateResponse:
            current.set(record.part(record.began_s))
            return await self.answer(source, is_bulk=is_many)

        room = record.room or asyncio.Semaphore(self.model.engine.slots)
        return SegmentedAnswer(document, self.model.manifest, answer, room, _note)

    async def response(self, call: EngineCall, source: str) -> generation_pb2.GenerateResponse:
        """Writes the answer to one source once it is there."""
        given = self.given
        is_large = given.return_attention or given.return_alignment or given.return_top_tokens
        async with self.writing if is_large else nullcontext():
            places = None
            if given.return_alignment:
                tokens, tokenizer = call.spec.source, self.model.tokenizer
                places = SourcePlaces.of(source, tokens, self.affixes, tokenizer)
            response = await response_of(
                self.model,
                call.spec.source,
                call.timeline,
                call.result(),
                text=source,
                places=places,
                given=given,
                prefix=len(self.options.prefix),
            )
        _note(response)
        return response

    async def reserve(
        self, size: AnswerSize, request: Message, *, is_bulk: bool, held_bytes: int = 0
    ) -> None:
        """Waits until there is memory for an answer.

        Raises:
            ServiceError: As :meth:`ServerCall.reserve`.
        """
        max_wait_s = math.inf if is_bulk else min(MAX_WAIT_S, self.options.time_limit_s)
        await current.get().reserve(size, request, max_wait_s=max_wait_s, held_bytes=held_bytes)

    async def reserve_for(
        self, texts: Sequence[Text], request: Message, *, is_bulk: bool
    ) -> AnswerSize:
        """Waits until there is memory for the answers to texts; gives their size.

        Each segment of a text is one of its sources.

        Raises:
            ServiceError: As :meth:`ServerCall.reserve`.
        """
        documents = [text for text in texts if isinstance(text, Document)]
        size = answer_size(
            self.model,
            self.given,
            self.options,
            sources=sum(map(count_of, texts)),
            text_bytes=sum(len(document.text.encode()) for document in documents),
        )
        held_bytes = sum(document.held_bytes for document in documents)
        await self.reserve(size, request, is_bulk=is_bulk, held_bytes=held_bytes)
        return size

    def size_of(self, call: EngineCall) -> AnswerSize:
        """Bounds the answer to one source."""
        spec = cast(GenerateSpec, call.spec)
        return answer_size(self.model, self.given, spec.options, len(spec.source))


def count_of(text: Text) -> int:
    """Counts the answers that a text needs: one for each segment if it is divided."""
    return len(text.segments) if isinstance(text, Document) else 1


def _note(response: generation_pb2.GenerateResponse) -> None:
    segments = {"segments": len(response.segments)} if response.segments else {}
    current.get().facts.update(
        segments,
        source_tokens=response.source_tokens,
        generated_tokens=response.generated_tokens,
        queue_ms=response.timings.queue_ms,
        first_token_ms=response.timings.first_token_ms,
    )


def answer_size(
    model: ServedModel,
    given: generation_pb2.GenerationOptions,
    options: DecodingOptions,
    source_tokens: int = 0,
    *,
    sources: int = 1,
    text_bytes: int = 0,
) -> AnswerSize:
    """Bounds the answers to sources with these options, as they were given and converted.

    Without their number of tokens, they may be as long as the model allows.
    """
    return AnswerSize.generated(
        options,
        source_tokens=source_tokens or model.manifest.limits.max_source_length,
        token_bytes=model.tokenizer.token_bytes,
        term_bytes=[term.ByteSize() for term in given.terms],
        sources=sources,
        text_bytes=text_bytes,
    )
