# Generated from seqserve/_async/calls.py by `make clients`; do not edit.
"""One call with its retries: the messages of the first attempt that the server answers.

An attempt is repeated only while it has yielded nothing, so no message is yielded twice. Closing
the generator cancels the call on the server.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from google.protobuf.message import Message

from seqserve._sync.groups import CallGroup
from seqserve._transport.method import Method
from seqserve.errors import CallError
from seqserve.retry import Attempts


def messages_of(
    group: CallGroup, method: Method, request: Message, attempts: Attempts
) -> Generator[Any, None, None]:
    """Yields the messages of a call as they arrive."""
    while True:
        call = group.call(method, request, attempts.begin())
        answered = False
        try:
            for message in call:
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
        group.wait(delay_s)
