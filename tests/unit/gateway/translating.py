"""A fake server whose models translate pairs of languages, behind a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.door import house_of, opened

from seqserve.v1 import generation_pb2, model_pb2
from seqserve_gateway.forms import FORMS

_NO_SCORER = generation_pb2.Failure(
    code=grpc.StatusCode.FAILED_PRECONDITION.value[0], message="the model has no scorer.onnx"
)


class TranslatingServer(FakeServer):
    """Upper-cases texts, and lists a model for each pair.

    Attributes:
        models: What it lists.
        has_scorer: Whether it aligns what it writes.
    """

    def __init__(self, *pairs: str) -> None:
        """Takes pairs, such as ``"en-de"``; ``"en-de fr"`` is one model with several targets."""
        super().__init__()
        self.models = [_model(pair) for pair in pairs]
        self.has_scorer = True

    def Generate(self, request: Any, context: Any) -> Any:
        if request.options.return_alignment and not self.has_scorer:
            detail = any_pb2.Any()
            detail.Pack(error_details_pb2.ErrorInfo(reason="NO_SCORER", domain="seqserve"))
            status = status_pb2.Status(code=_NO_SCORER.code, message=_NO_SCORER.message)
            status.details.append(detail)
            context.abort_with_status(rpc_status.to_status(status))
        return super().Generate(request, context)

    def _outcome(self, request: Any, context: Any) -> Any:
        if request.options.return_alignment and not self.has_scorer:
            self.requests.append(request)
            return generation_pb2.Outcome(failure=_NO_SCORER)
        return super()._outcome(request, context)

    def ListModels(self, request: Any, context: Any) -> Any:
        self._note_metadata(context)
        return model_pb2.ListModelsResponse(models=self.models)


def _model(pair: str) -> model_pb2.Model:
    source, _, targets = pair.partition("-")
    return model_pb2.Model(
        name=f"model of {pair}",
        version=1,
        state=model_pb2.MODEL_STATE_READY,
        source_languages=[source],
        target_languages=targets.split(),
    )


@asynccontextmanager
async def translating(*pairs: str) -> AsyncIterator[tuple[httpx.AsyncClient, TranslatingServer]]:
    """Opens every form in front of such a server."""
    server = TranslatingServer(*pairs)
    try:
        async with opened(house_of(server), *FORMS) as client:
            yield client, server
    finally:
        server.stop()
