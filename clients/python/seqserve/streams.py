"""The pieces of a stream, plain and awaited; it is whole once its result has come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from types import TracebackType
from typing import Self

from seqserve import responses
from seqserve.calls import async_messages_of, messages_of
from seqserve.errors import CallError
from seqserve.groups import AsyncCallGroup, CallGroup
from seqserve.results import Piece
from seqserve.retry import Attempts
from seqserve.transport import Method
from seqserve.v1 import generation_pb2


def pieces_of(
    group: CallGroup, request: generation_pb2.GenerateRequest, attempts: Attempts
) -> Generator[Piece, None, None]:
    """Gives the pieces of a stream as they come.

    Raises:
        CallError: The call failed before its result.
    """
    answers = messages_of(group, Method.GENERATE_STREAM, request, attempts)
    with closing(answers), _Stream() as stream:
        for answer in answers:
            yield stream.piece_of(answer)


async def async_pieces_of(
    group: AsyncCallGroup, request: generation_pb2.GenerateRequest, attempts: Attempts
) -> AsyncGenerator[Piece, None]:
    """Gives the pieces of a stream as they come; the awaited twin of :func:`pieces_of`.

    Raises:
        CallError: The call failed before its result.
    """
    answers = async_messages_of(group, Method.GENERATE_STREAM, request, attempts)
    async with aclosing(answers):
        with _Stream() as stream:
            async for answer in answers:
                yield stream.piece_of(answer)


class _Stream:
    """What came of one stream; a context manager that makes sure of the result."""

    def __init__(self) -> None:
        self._is_whole = False

    def piece_of(self, answer: generation_pb2.GenerateStreamResponse) -> Piece:
        piece = responses.piece_of(answer)
        self._is_whole = self._is_whole or piece.result is not None
        return piece

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None and not self._is_whole:
            raise responses.broken_off()
        # The result is there, so a bad status after it changes nothing. It was waited for all the
        # same: leaving before it would look like a cancel to the server.
        return self._is_whole and isinstance(error, CallError)
