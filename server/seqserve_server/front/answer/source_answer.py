"""Answers one source: runs its parts on the engine, as many at once as a window lets in."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.front.answer.engine_call import EngineCall, call_of
from seqserve_server.front.answer.joined import JoinedAnswer
from seqserve_server.front.answer.parts_answer import PartsAnswer
from seqserve_server.front.answer.response import response_of
from seqserve_server.front.answer.window import Window
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.request.parts import Part, Source
from seqserve_server.front.request.prepared import Prepared
from seqserve_server.text.tokenizer import Tokenizer

Response = generation_pb2.GenerateResponse
Piece = generation_pb2.Piece


class SourceAnswer(PartsAnswer[tuple[Part, Response | None]]):
    """The answer of one model to one source of a request."""

    def __init__(
        self, prepared: Prepared, source: Source | ServiceError, call: ServerCall, window: Window
    ) -> None:
        """Prepares the answer.

        Args:
            prepared: The request.
            source: One of its sources.
            call: The call that the answer is for.
            window: Bounds the parts of divided sources that are under way.

        Raises:
            ServiceError: The source is one that cannot be answered.
        """
        if isinstance(source, ServiceError):
            raise source
        super().__init__(source, JoinedAnswer(source, prepared.model.manifest), window)
        self._prepared, self._call = prepared, call
        # Parts of a source are as many sources of a call.
        self.is_bulk = prepared.is_bulk or len(source.parts) > 1
        """Whether a part waits where a lone source is refused."""

    async def answer(self, part: Part) -> tuple[Part, Response | None]:
        """Answers a part; None if the model can read none of it.

        Raises:
            ServiceError: The part could not be answered.
        """
        if not part.tokens:
            return part, None
        call = self._engine_call(part, streamed=False)
        await call.finished(retries=self.is_bulk)
        return part, await self._response_of(part, call)

    async def _streamed(self, part: Part) -> AsyncGenerator[Piece, None]:
        """Yields the text of the only part as it is decoded, and adds its answer."""
        # What may still be replaced is not streamed.
        replaces = self._prepared.sent_options.replace_unknowns or part.kept or part.lowered
        call = self._engine_call(part, streamed=not replaces)
        tokenizer, stops = self._prepared.model.tokenizer, part.options.stops
        text = tokenizer.stream(stops)
        generated: list[int] = []
        sent_text, sent_tokens = "", 0
        async with aclosing(call.progress()) as progress:
            async for tokens in progress:
                generated += tokens
                if piece := text.push(tokens):
                    sent_text += piece
                    # A stop sequence may yet cut off the tokens after the text.
                    end = len(generated)
                    if stops:
                        end = _covering(tokenizer, generated, sent_text, sent_tokens)
                    yield Piece(text=piece, token_ids=generated[sent_tokens:end])
                    sent_tokens = end
        response = await self._response_of(part, call)
        best = response.hypotheses[0]
        if rest := text.flush(best.text):
            yield Piece(text=rest, token_ids=best.token_ids[sent_tokens:])
        self._add((part, response))

    def _add(self, answered: tuple[Part, Response | None]) -> str:
        """Adds the next part; returns its text, and the white space before it."""
        return self._joined.add(*answered)

    async def _response_of(self, part: Part, call: EngineCall) -> Response:
        writing = self._call.resources.writing
        return await response_of(self._prepared, self._source, part, call, writing)

    def _engine_call(self, part: Part, *, streamed: bool) -> EngineCall:
        prepared, call = self._prepared, self._call
        spec = prepared.spec(part, call, streamed=streamed, is_bulk=self.is_bulk)
        return call_of(prepared.model, spec, call, may_keep=prepared.is_repeatable)


def _covering(tokenizer: Tokenizer, tokens: list[int], text: str, min_count: int) -> int:
    """Counts the leading tokens whose text begins with ``text``; ``min_count`` or more."""
    for count in range(min_count, len(tokens)):
        if tokenizer.decode(tokens[:count]).startswith(text):
            return count
    return len(tokens)
