"""One call with its retries, plain and awaited: the messages of the first attempt that answers.

An attempt is repeated only while it has given nothing: what a caller has seen is never sent twice.
Leaving early (``break``, ``close()``) cancels the call on the server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from google.protobuf.message import Message

from seqserve.errors import CallError
from seqserve.groups import AsyncCallGroup, CallGroup
from seqserve.retry import Attempts
from seqserve.transport import Method


def messages_of(
    group: CallGroup, method: Method, request: Message, attempts: Attempts
) -> Generator[Any, None, None]:
    """Gives the messages of a call as they come.

    Raises:
        CallError: The last attempt failed, or an earlier one in a way that forbids another.
    """
    while True:
        call = group.call(method, request, attempts.remaining_s())
        answered = False
        try:
            for message in call:
                answered = True
                yield message
            return
        except CallError as error:
            delay_s = None if answered else attempts.delay_after(error)
            if delay_s is None:
                raise
        finally:
            call.cancel()
        group.wait(delay_s)


async def async_messages_of(
    group: AsyncCallGroup, method: Method, request: Message, attempts: Attempts
) -> AsyncGenerator[Any, None]:
    """Gives the messages of a call as they come; the awaited twin of :func:`messages_of`.

    Raises:
        CallError: The last attempt failed, or an earlier one in a way that forbids another.
    """
    while True:
        call = group.call(method, request, attempts.remaining_s())
        answered = False
        try:
            async for message in call:
                answered = True
                yield message
            return
        except CallError as error:
            delay_s = None if answered else attempts.delay_after(error)
            if delay_s is None:
                raise
        finally:
            call.cancel()
        await group.wait(delay_s)
