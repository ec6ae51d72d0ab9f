# Generated from seqserve/_async/streams.py by `make clients`; do not edit.
"""The pieces of a stream, up to its result."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from seqserve import responses
from seqserve._sync.calls import messages_of
from seqserve._sync.groups import CallGroup
from seqserve._transport.method import Method
from seqserve.errors import CallError, InternalError
from seqserve.results import Piece
from seqserve.retry import Attempts
from seqserve.v1 import generation_pb2


def pieces_of(
    group: CallGroup, request: generation_pb2.GenerateRequest, attempts: Attempts
) -> Generator[Piece, None, None]:
    """Yields the pieces of a stream as they arrive."""
    has_result = False
    with closing(messages_of(group, Method.GENERATE_STREAM, request, attempts)) as messages:
        try:
            for message in messages:
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
