"""Figures of a version since it was loaded, as Triton's ``ModelStatistics`` gives them.

They are those of the metrics: calls are counted by the front, texts and steps by the engine.
Source: https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpc import StatusCode

from seqserve.open_inference import open_inference_pb2 as pb
from seqserve_server.contract.stats import EngineStats, Histogram
from seqserve_server.front.telemetry.call_metrics import Calls, Kind
from seqserve_server.front.telemetry.engine_metrics import ProcessUsage

_GENERATION = "GenerationService."
_INFERENCE = ("GRPCInferenceService.ModelInfer", "GRPCInferenceService.ModelStreamInfer")


def statistics_of(
    name: str,
    version: int,
    calls: Mapping[Kind, Calls],
    stats: EngineStats,
    usage: ProcessUsage | None,
) -> pb.ModelStatistics:
    """Makes the message about one version.

    Args:
        name: Of the model.
        version: The version.
        calls: Its calls, of any method; only those that ask the model for an answer are counted.
        stats: The figures of its engine.
        usage: What the engine's process uses, if that is known.
    """
    inferences = {kind: figures for kind, figures in calls.items() if _is_inference(kind.method)}
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


def _is_inference(method: str) -> bool:
    return method.startswith(_GENERATION) or method in _INFERENCE


def _sum(durations: Iterable[Histogram]) -> pb.StatisticDuration:
    count, total_s = 0.0, 0.0
    for histogram in durations:
        buckets, seconds = histogram.buckets()
        count += buckets[-1][1]
        total_s += seconds
    return pb.StatisticDuration(count=int(count), ns=int(total_s * 1e9))
