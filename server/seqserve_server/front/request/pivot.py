"""A request that two models answer, prepared: what remains is to answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest, ServiceError
from seqserve_server.front.call.answer_size import AnswerSize
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.front.models.pairs import Legs
from seqserve_server.front.request.options import priority_of, read_options
from seqserve_server.front.request.parts import Source
from seqserve_server.front.request.pivot_options import first_options, second_options
from seqserve_server.front.request.prepared import (
    GenerateRequest,
    Prepared,
    check_refusals,
    prepare,
    read,
)

# Where bytes are no text, three bytes stand for two; a text is held as text and on the wire.
_TEXT_BYTES = 3


@dataclass(frozen=True, kw_only=True)
class Pivot:
    """A request that is prepared for the first model, and what the second one needs."""

    first: Prepared
    second: LoadedModel
    legs: Legs
    options: generation_pb2.GenerationOptions
    """For the second model."""
    priority: generation_pb2.Priority
    answer_size: AnswerSize
    """Bound of the answers, with the texts between the models."""

    @classmethod
    async def prepare(
        cls,
        request: GenerateRequest,
        legs: Legs,
        models: Sequence[LoadedModel],
        call: ServerCall,
        *,
        is_bulk: bool,
    ) -> Pivot:
        """Reads a request for the first model, and waits until there is memory for both.

        Raises:
            ServiceError: As :func:`~seqserve_server.front.request.prepared.prepare`, for either
                model.
        """
        first, second = models
        of_first = first_options(request.options, legs[0])
        options = second_options(request.options, legs[1])
        # Before the first model works.
        decoding = read_options(options, second).decoding
        if not (is_bulk or isinstance(request, generation_pb2.GenerateBatchRequest)):
            check_refusals(second, priority_of(request.priority), call)
        prepared = await read(request, first, call, options=of_first, is_bulk=is_bulk)
        # The second model has one answer for each part of the source.
        size = replace(prepared, model=second, options=decoding).answer_size
        between = _TEXT_BYTES * prepared.options.max_decoding_length * first.tokenizer.token_bytes
        size = replace(size, parts=size.parts | {"source": size.parts["source"] + between})
        await prepared.reserve(size, request, call)
        return cls(
            first=prepared,
            second=second,
            legs=legs,
            options=options,
            priority=request.priority,
            answer_size=size,
        )

    @property
    def sources(self) -> list[Source | ServiceError]:
        """The sources of the request, as the first model reads them."""
        return self.first.sources

    async def next(self, text: str, call: ServerCall, *, is_bulk: bool) -> Prepared:
        """Prepares what the first model has written for the second one.

        Raises:
            ServiceError: The second model refuses it.
        """
        request = generation_pb2.GenerateRequest(
            source=text, options=self.options, priority=self.priority
        )
        try:
            return await prepare(request, self.second, call, is_bulk=is_bulk)
        except InvalidRequest as error:
            if error.field != "source":
                raise
            between = f"between the two models, in {self.legs[0].target!r}, {error.reason}"
            raise InvalidRequest("source", between) from None
