"""``seqserve.v1.ModelService``: lists, loads and unloads models."""

from __future__ import annotations

from seqserve.v1 import model_pb2, model_pb2_grpc
from seqserve_server.front.models.lifecycle import ModelState
from seqserve_server.front.models.repository import Entry
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.rpc.calls.wire import Context

_STATES = {
    ModelState.AVAILABLE: model_pb2.MODEL_STATE_AVAILABLE,
    ModelState.LOADING: model_pb2.MODEL_STATE_LOADING,
    ModelState.READY: model_pb2.MODEL_STATE_READY,
    ModelState.DRAINING: model_pb2.MODEL_STATE_DRAINING,
    ModelState.FAILED: model_pb2.MODEL_STATE_FAILED,
}


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """Converts between messages and the models of the server."""

    def __init__(self, rollout: Rollout) -> None:
        """Takes the models."""
        self._rollout = rollout
        self._repository = rollout.repository

    async def ListModels(
        self, request: model_pb2.ListModelsRequest, context: Context
    ) -> model_pb2.ListModelsResponse:
        """Lists every version, whatever its state."""
        models = [self._model(entry) for entry in self._repository.entries]
        return model_pb2.ListModelsResponse(models=models)

    async def GetModel(
        self, request: model_pb2.GetModelRequest, context: Context
    ) -> model_pb2.GetModelResponse:
        """Describes one version."""
        entry = self._repository.find(request.model, request.version)
        return model_pb2.GetModelResponse(model=self._model(entry))

    async def LoadModel(
        self, request: model_pb2.LoadModelRequest, context: Context
    ) -> model_pb2.LoadModelResponse:
        """Loads a version; answers when it takes calls."""
        entry = await self._rollout.load(request.model, request.version)
        return model_pb2.LoadModelResponse(model=self._model(entry))

    async def UnloadModel(
        self, request: model_pb2.UnloadModelRequest, context: Context
    ) -> model_pb2.UnloadModelResponse:
        """Unloads a version; answers when its process has ended."""
        entry = await self._rollout.unload(request.model, request.version)
        return model_pb2.UnloadModelResponse(model=self._model(entry))

    async def SetTraffic(
        self, request: model_pb2.SetTrafficRequest, context: Context
    ) -> model_pb2.SetTrafficResponse:
        """Sets the weights by which calls that name no version are shared."""
        entries = self._rollout.set_traffic(request.model, dict(request.weights))
        models = [self._model(entry) for entry in entries]
        return model_pb2.SetTrafficResponse(models=models)

    def _model(self, entry: Entry) -> model_pb2.Model:
        share = self._repository.share(entry)
        message = model_pb2.Model(
            name=entry.name,
            version=entry.version,
            state=_STATES[entry.state],
            state_reason=entry.reason,
            is_default=entry.name == self._repository.default and share > 0.0,
            traffic_share=share,
        )
        if entry.model is not None:
            manifest = entry.model.manifest
            message.precision = manifest.precision
            message.provider = entry.model.provider.value
            message.max_source_length = manifest.limits.max_source_length
            message.max_target_length = manifest.limits.max_target_length
            message.vocabulary_size = manifest.architecture.vocabulary_size
            message.description = manifest.description
            message.licence = manifest.licence
        return message
