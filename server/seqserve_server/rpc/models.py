"""``seqserve.v1.ModelService``: converts and delegates."""

from __future__ import annotations

from typing import Any

import grpc

from seqserve.v1 import model_pb2, model_pb2_grpc
from seqserve_server.repository import Entry, ModelState, Repository

Context = grpc.aio.ServicerContext[Any, Any]

_STATES = {
    ModelState.READY: model_pb2.MODEL_STATE_READY,
    ModelState.FAILED: model_pb2.MODEL_STATE_FAILED,
}


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """Tells which models there are."""

    def __init__(self, repository: Repository) -> None:
        """Takes the models."""
        self._repository = repository

    async def ListModels(
        self, request: model_pb2.ListModelsRequest, context: Context
    ) -> model_pb2.ListModelsResponse:
        """Lists every version, sound or not."""
        models = [self._model(entry) for entry in self._repository.entries]
        return model_pb2.ListModelsResponse(models=models)

    async def GetModel(
        self, request: model_pb2.GetModelRequest, context: Context
    ) -> model_pb2.GetModelResponse:
        """Describes the version that a call would mean."""
        entry = self._repository.find(request.model, request.version)
        return model_pb2.GetModelResponse(model=self._model(entry))

    def _model(self, entry: Entry) -> model_pb2.Model:
        message = model_pb2.Model(
            name=entry.name,
            version=entry.version,
            state=_STATES[entry.state],
            state_reason=entry.reason,
        )
        if entry.model is not None:
            manifest = entry.model.manifest
            default = self._repository.default
            message.is_default = bool(default) and entry is self._repository.find(default)
            message.precision = manifest.precision
            message.provider = entry.model.provider.value
            message.max_source_length = manifest.limits.max_source_length
            message.max_target_length = manifest.limits.max_target_length
            message.vocabulary_size = manifest.architecture.vocabulary_size
            message.description = manifest.description
            message.licence = manifest.licence
        return message
