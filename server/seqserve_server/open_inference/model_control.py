"""``inference.GRPCInferenceService``, the Open Inference Protocol: everything but inference."""

import asyncio
import re
from collections.abc import Iterable, Mapping

from google.protobuf.message import Message
from grpc import StatusCode

from seqserve import __version__
from seqserve.open_inference import open_inference_pb2 as pb
from seqserve.open_inference import open_inference_pb2_grpc
from seqserve_server.artifact.repository import VERSION
from seqserve_server.contract.errors import MAX_NAME, InvalidRequest, ModelNotFound
from seqserve_server.contract.stats import EngineStats, Histogram
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.fronts.shared_versions import Versions
from seqserve_server.front.generate.records import Features
from seqserve_server.front.models.lifecycle import Entry
from seqserve_server.front.telemetry.call_metrics import Calls, Kind
from seqserve_server.front.telemetry.engine_metrics import ProcessUsage, usage_of
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.open_inference.tensors import config_of, metadata_of

# Triton's names of the extensions that are here.
_EXTENSIONS = ("model_configuration", "model_repository", "parameters", "statistics")
_GENERATION = "GenerationService."
_INFERENCE = ("GRPCInferenceService.ModelInfer", "GRPCInferenceService.ModelStreamInfer")


class ModelControlServicer(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Reports readiness and figures, describes models, and loads and unloads them."""

    def __init__(
        self, versions: Versions, metrics: Metrics, features: Features, draining: asyncio.Event
    ) -> None:
        self._versions, self._metrics = versions, metrics
        self._repository, self._features = versions.repository, features
        self._draining = draining

    async def ServerLive(self, request: Message, call: ServerCall) -> pb.ServerLiveResponse:
        """Answers that the server is alive."""
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Message, call: ServerCall) -> pb.ServerReadyResponse:
        """Reports whether any model takes calls."""
        is_ready = self._repository.is_ready and not self._draining.is_set()
        return pb.ServerReadyResponse(ready=is_ready)

    async def ModelReady(
        self, request: pb.ModelReadyRequest, call: ServerCall
    ) -> pb.ModelReadyResponse:
        """Reports whether a model takes calls; one that does not exist takes none."""
        version = version_of("version", request.version)
        try:
            is_ready = self._takes_calls(self._repository.find(request.name, version))
        except ModelNotFound:
            is_ready = False
        return pb.ModelReadyResponse(ready=is_ready)

    async def ServerMetadata(self, request: Message, call: ServerCall) -> pb.ServerMetadataResponse:
        """Returns the server's name, version and extensions."""
        return pb.ServerMetadataResponse(
            name="seqserve", version=__version__, extensions=_EXTENSIONS
        )

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, call: ServerCall
    ) -> pb.ModelMetadataResponse:
        """Describes the tensors of a model, as the protocol does."""
        name = self._name(request, call)
        versions = self._repository.versions(name)
        return metadata_of(
            name, [entry.version for entry in versions if entry.model or entry.is_ready]
        )

    async def ModelConfig(
        self, request: pb.ModelConfigRequest, call: ServerCall
    ) -> pb.ModelConfigResponse:
        """Describes the tensors of a model, as Triton's configuration does."""
        return pb.ModelConfigResponse(config=config_of(self._name(request, call)))

    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, call: ServerCall
    ) -> pb.ModelStatisticsResponse:
        """Returns the figures of one version, of all versions of a model, or of all models."""
        version = version_of("version", request.version)
        if version or request.name:
            # Raises NOT_FOUND for what does not exist.
            name = self._repository.find(request.name, version).name
            entries = self._repository.versions(name)
        else:
            entries = self._repository.entries
        wanted = [entry for entry in entries if version in (0, entry.version)]
        statistics = await asyncio.gather(
            *(self._statistics(entry) for entry in wanted if entry.model)
        )
        return pb.ModelStatisticsResponse(model_stats=statistics)

    async def _statistics(self, entry: Entry) -> pb.ModelStatistics:
        assert entry.model is not None
        engine, label = entry.model.engine, (entry.name, entry.version)
        reply = await engine.newest_stats()
        calls, usage = self._metrics.calls_of(*label), usage_of(engine.status.pids)
        return statistics_of(*label, calls, reply.stats, usage)

    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, call: ServerCall
    ) -> pb.RepositoryIndexResponse:
        """Lists every version, or only those that take calls."""
        _check_repository(request.repository_name)
        response = pb.RepositoryIndexResponse()
        for entry in self._repository.entries:
            is_ready = self._takes_calls(entry)
            if is_ready or not request.ready:
                response.models.add(
                    name=entry.name,
                    version=str(entry.version),
                    state="READY" if is_ready else "UNAVAILABLE",
                    reason=entry.reason or ("" if is_ready else "it takes no calls for now"),
                )
        return response

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, call: ServerCall
    ) -> pb.RepositoryModelLoadResponse:
        """Loads the highest version of a model; answers when it takes calls."""
        _check_repository(request.repository_name)
        # Triton's parameters would bring a configuration, or files, from the network.
        if request.parameters:
            raise InvalidRequest(
                "parameters", "must be empty: a version is loaded as its folder holds it"
            )
        await self._versions.load(request.model_name)
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, call: ServerCall
    ) -> pb.RepositoryModelUnloadResponse:
        """Unloads every version of a model; answers when their processes have ended."""
        _check_repository(request.repository_name)
        # Raises NOT_FOUND for a model that does not exist.
        name = self._repository.find(request.model_name).name
        # From the lowest version up, so that none takes the place of a higher one; and all at once,
        # so that no call gets a version that is about to go.
        unloading = [
            self._versions.unload(name, entry.version) for entry in self._repository.versions(name)
        ]
        await asyncio.gather(*unloading)
        return pb.RepositoryModelUnloadResponse()

    def _takes_calls(self, entry: Entry) -> bool:
        return entry.is_ready and not self._draining.is_set()

    def _name(
        self, request: pb.ModelMetadataRequest | pb.ModelConfigRequest, call: ServerCall
    ) -> str:
        # Metadata of tensors is not worth a load.
        version = version_of("version", request.version)
        entry = self._repository.choose(request.name, version, call.request_id)
        call.model, call.version = entry.name, entry.version
        return entry.name


def version_of(field: str, text: str) -> int:
    """Reads a version, which this protocol writes as text; 0 if it is empty."""
    if not text:
        return 0
    if not re.fullmatch(VERSION, text):
        raise InvalidRequest(
            field, f"is {text!r:.{MAX_NAME}}; give a whole number from 1 up, or leave it empty"
        )
    return int(text)


def _check_repository(name: str) -> None:
    if name:
        raise InvalidRequest("repository_name", "must be empty: the server has one repository")


def statistics_of(
    name: str,
    version: int,
    calls: Mapping[Kind, Calls],
    stats: EngineStats,
    usage: ProcessUsage | None,
) -> pb.ModelStatistics:
    """Returns the figures of a version since it was loaded, as Triton's ``ModelStatistics``.

    They equal the metrics, of calls that ask the model for an answer. Source:
    https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md.
    """
    inferences = {
        kind: figures
        for kind, figures in calls.items()
        if kind.method.startswith(_GENERATION) or kind.method in _INFERENCE
    }
    answered = [figures for kind, figures in inferences.items() if kind.code == StatusCode.OK.name]
    failed = [figures for kind, figures in inferences.items() if kind.code != StatusCode.OK.name]
    queue, compute, steps = (
        _sum([stats.histograms[f"{stage}_duration_seconds"]])
        for stage in ("queue", "compute", "step")
    )
    message = pb.ModelStatistics(
        name=name,
        version=str(version),
        last_inference=int(
            1e3 * max((figures.last_s for figures in inferences.values()), default=0.0)
        ),
        inference_count=compute.count,
        execution_count=steps.count,
        inference_stats=pb.InferStatistics(
            success=_sum(figures.durations for figures in answered),
            fail=_sum(figures.durations for figures in failed),
            queue=queue,
            # perf_analyzer gives up unless the three have one count.
            compute_input=pb.StatisticDuration(count=compute.count),
            compute_infer=compute,
            compute_output=pb.StatisticDuration(count=compute.count),
        ),
    )
    if usage is not None:
        message.memory_usage.add(type="CPU", byte_size=int(usage.resident_bytes))
    return message


def _sum(durations: Iterable[Histogram]) -> pb.StatisticDuration:
    count, total_s = 0.0, 0.0
    for histogram in durations:
        buckets, seconds = histogram.buckets()
        count += buckets[-1][1]
        total_s += seconds
    return pb.StatisticDuration(count=int(count), ns=int(total_s * 1e9))
