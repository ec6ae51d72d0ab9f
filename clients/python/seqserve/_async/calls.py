"""One call with its retries: the messages of the first attempt that the server answers.

An attempt is repeated only while it has yielded nothing, so no message is yielded twice. Closing
the generator cancels the call on the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from seqserve import responses
from seqserve._async.groups import CallGroup
from seqserve._transport.method import Method
from seqserve.errors import CallError, InternalError
from seqserve.results import Piece
from seqserve.retry import Attempts
from seqserve.v1 import generation_pb2


async def messages_of(
    group: CallGroup, method: Method, request: Message, attempts: Attempts
) -> AsyncGenerator[Any, None]:
    """Yields the messages of a call as they arrive."""
    while True:
        call = group.call(method, request, attempts.begin())
        answered = False
        try:
            async for message in call:
                if not answered:
                    attempts.answered()
                answered = True
                yield message
            return
        except CallError as error:
            delay_s = None if answered else attempts.delay_after(error)
            if delay_s is None:
                attempts.explain(error)
                raise
        finally:
            call.cancel()
        await group.wait(delay_s)


async def pieces_of(
    group: CallGroup, request: generation_pb2.GenerateRequest, attempts: Attempts
) -> AsyncGenerator[Piece, None]:
    """Yields the pieces of a stream as they arrive."""
    has_result = False
    async with aclosing(messages_of(group, Method.GENERATE_STREAM, request, attempts)) as messages:
        try:
            async for message in messages:
                piece = responses.piece_of(message)
                has_result = has_result or piece.result is not None
                yield piece
        except CallError:
            # The stream is read up to its status, because the server takes an earlier end for a
            # cancellation. A bad status after the result changes nothing.
            if not has_result:
                raise
    if not has_result:
        raise InternalError("INTERNAL", "the server ended the stream without a result")
