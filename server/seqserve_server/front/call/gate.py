"""Refuses calls on arrival that the backlog does not admit, and reports them.

A call that is refused here has cost no task, no interceptor and no reading of its request. It is
counted as every call; the log has one line a second for all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc

from seqserve.request_id import REQUEST_ID, request_id
from seqserve_server.contract.errors import QueueFull
from seqserve_server.front.call.backlog import Backlog
from seqserve_server.front.call.peer import peer_name
from seqserve_server.front.call.status import failure_of
from seqserve_server.front.call.wire import Context, forget_origin
from seqserve_server.front.telemetry.call_metrics import Kind
from seqserve_server.front.telemetry.call_record import method_name
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import logs

_LOG_INTERVAL_S = 1.0
_ENGINE_METHODS = (
    "/seqserve.v1.GenerationService/Generate",
    "/seqserve.v1.GenerationService/GenerateStream",
    "/seqserve.v1.GenerationService/GenerateBatch",
    "/seqserve.v1.GenerationService/GenerateBulk",
    "/seqserve.v1.GenerationService/Score",
    "/seqserve.v1.GenerationService/Attention",
    "/seqserve.v1.GenerationService/Tokenize",
    "/seqserve.v1.GenerationService/Detokenize",
    "/inference.GRPCInferenceService/ModelInfer",
)


class Gate:
    """What every call for an engine passes before it gets a handler."""

    methods = frozenset(_ENGINE_METHODS)
    """Methods whose calls pass; health, models and statistics are always answered."""

    def __init__(self, metrics: Metrics, *, caller_metadata: str = "") -> None:
        """Takes where calls are reported, and the metadata key that names the client, if any."""
        self._metrics = metrics
        self._caller_metadata = caller_metadata
        self._backlog = Backlog()
        self._refused: Counter[str] = Counter()

    async def refuses(self, method: str, context: Context, peer: str) -> bool:
        """Ends a call of a peer that cannot be served soon, and returns whether it did."""
        try:
            self._backlog.enter(peer)
        except QueueFull as full:
            failure = failure_of(full, "")
            metadata: Any = context.invocation_metadata()
            id_ = request_id(metadata)
            kind = Kind(method_name(method), failure.outcome.code.name)
            self._metrics.called("", 0, kind, 0.0, {"request_id": id_})
            self._metrics.refused("", full)
            self._note(kind.method)
            trailers: Any = ((REQUEST_ID, id_), *failure.trailers)
            await _end(context, failure.outcome.code, failure.message, trailers)
            return True
        return False

    async def refuse_unknown(self, context: Context) -> None:
        """Ends a call of a method that there is not; it is neither counted nor in the log."""
        await _end(context, grpc.StatusCode.UNIMPLEMENTED, "the server has no such method")

    def taken(self, peer: str) -> None:
        """Tells that gRPC takes a call of a peer, which was not refused."""
        self._backlog.leave(peer)

    def peer_of(self, context: Context) -> str:
        """Returns the name of the peer that a call is of."""
        metadata: Any = context.invocation_metadata() if self._caller_metadata else ()
        return peer_name(context.peer(), metadata, self._caller_metadata)

    def _note(self, method: str) -> None:
        if not self._refused:
            asyncio.get_running_loop().call_later(_LOG_INTERVAL_S, self._log)
        self._refused[method] += 1

    def _log(self) -> None:
        for method, calls in self._refused.items():
            logs.event("calls refused on arrival", {"method": method, "calls": calls})
        self._refused.clear()


async def _end(context: Context, code: grpc.StatusCode, details: str, trailers: Any = ()) -> None:
    try:
        await context.abort(code, details, trailers)
    except grpc.aio.BaseError as ended:  # as it should be, or the client is gone
        forget_origin(ended)
