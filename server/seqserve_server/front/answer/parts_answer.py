"""The way through the parts of a source, however each of them is answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic, TypeVar

from seqserve.v1 import generation_pb2
from seqserve_server.front.answer.joined import JoinedAnswer
from seqserve_server.front.answer.window import Window
from seqserve_server.front.request.parts import Part, Source

Response = generation_pb2.GenerateResponse
Piece = generation_pb2.Piece
Answered = TypeVar("Answered")
"""A part and its answer."""


class PartsAnswer(ABC, Generic[Answered]):
    """The answer to one source of a request, as a whole or in pieces."""

    def __init__(self, source: Source, joined: JoinedAnswer, window: Window) -> None:
        """Takes the source, the answer that its parts make, and what bounds those under way."""
        self._source, self._joined, self._window = source, joined, window
        self.source_tokens = source.num_tokens
        """Tokens that the model reads, which is the first one of two."""

    async def whole(self) -> Response:
        """Answers when all parts are finished.

        Raises:
            ServiceError: A part could not be answered, and so the source cannot.
        """
        parts = self._source.parts
        if len(parts) == 1:
            self._add(await self.answer(parts[0]))
        else:
            async with aclosing(self._window.in_order(parts, self.answer)) as answers:
                async for answered in answers:
                    self._add(answered)
        return self.response()

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Yields the text as soon as it is final: of a lone part as it is decoded, of many by part.

        Raises:
            ServiceError: As :meth:`whole`.
        """
        if only := self._source.only:
            if only.span.begin:
                yield Piece(text=self._source.text[: only.span.begin])
            async with aclosing(self._streamed(only)) as pieces:
                async for piece in pieces:
                    yield piece
        else:
            parts = self._source.parts
            async with aclosing(self._window.in_order(parts, self.answer)) as answers:
                async for answered in answers:
                    yield Piece(text=self._add(answered))
        if rest := self._joined.rest():
            yield Piece(text=rest)

    def response(self) -> Response:
        """Returns the whole answer once all pieces are there."""
        return self._joined.response()

    @abstractmethod
    async def answer(self, part: Part) -> Answered:
        """Answers a part.

        Raises:
            ServiceError: The part could not be answered.
        """

    @abstractmethod
    def _streamed(self, part: Part) -> AsyncGenerator[Piece, None]:
        """Yields the text of the only part as it is decoded, and adds its answer."""

    @abstractmethod
    def _add(self, answered: Answered) -> str:
        """Adds the next part; returns its text, and the white space before it."""
