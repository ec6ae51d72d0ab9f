"""What ``seqserve plan`` divides by: one server under load, or the report of such a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import grpc

from seqserve import errors
from seqserve._transport.connection import Connection
from seqserve.arguments import MAX_MESSAGE_BYTES
from seqserve.command.load_options import LoadOptions
from seqserve.command.load_run import check_server, find_rate, result_in
from seqserve.command.plan_options import PlanOptions
from seqserve.load.capacity import Replica
from seqserve.load.result import Result
from seqserve.open_inference import open_inference_pb2, open_inference_pb2_grpc

_TIMEOUT_S = 10.0
_OF_A_SEARCH = ("highest_request_rate", "limit_p99_ms", "lone_p99_ms", "probes")
_OF_ANSWERS = ("mean_e2el_ms", "p99_e2el_ms", "completed", "burstiness")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredReplica:
    """What one server bears."""

    result: Mapping[str, Any]
    """Of the search for its highest rate."""
    replica: Replica
    is_here: bool = False
    """Whether it ran on this machine, for this measurement alone."""
    faults: Sequence[str] = ()
    """What makes it doubtful."""


def measured_replica(options: PlanOptions) -> MeasuredReplica:
    """Measures a server, or reads a report.

    Raises:
        OptionError: The report is none.
        SeqserveError: The server cannot be called, or holds the limit at no rate.
    """
    if options.report is not None:
        result = _reported(options)
        return MeasuredReplica(result=result, replica=Replica.of(result, cores=options.known_cores))
    with options.load_options() as load_options:
        load = load_options.load()
        check_server(load_options, load)
        search = find_rate(load_options, load, load_options.caller())
        _raise_if_none_holds(search.result)
        known = {"cores": options.known_cores, **_known(load_options)}
    return MeasuredReplica(
        result=search.result,
        replica=Replica.of(search.result, **known),
        is_here=options.is_started,
        faults=search.faults,
    )


def _reported(options: PlanOptions) -> Result:
    assert options.report is not None
    result = dict(result_in(options.report, "--report"))
    if not _is_of_a_search(result):
        raise errors.OptionError(
            f"--report: {options.report}: is no result of `seqserve load --find-rate`"
        )
    if options.p99_ms not in (None, result["limit_p99_ms"]):
        raise errors.OptionError(
            f"--p99-ms: the report has a limit of {result['limit_p99_ms']:g} ms; leave it out, or"
            " measure again"
        )
    _raise_if_none_holds(result)
    return result


def _is_of_a_search(result: Mapping[str, Any]) -> bool:
    if not all(name in result for name in _OF_A_SEARCH):
        return False
    numbers = all(isinstance(result.get(name), int | float) for name in _OF_ANSWERS)
    return numbers or result["highest_request_rate"] is None


def _raise_if_none_holds(result: Mapping[str, Any]) -> None:
    """Raises an error that says how late answers are at the lowest rate, if no rate holds."""
    if result["highest_request_rate"] is not None:
        return
    tried = [(probe["rate_per_s"], probe["p99_ms"]) for probe in result["probes"]]
    rate_per_s, late_ms = min(tried, default=(0.0, result["lone_p99_ms"]))
    load = f"at {rate_per_s:,.3g} requests a second" if tried else "with one request at a time"
    late = "without limit, for some fail" if late_ms == "inf" else f"{late_ms:,.1f} ms"
    error = errors.SeqserveError(
        f"no rate holds p99 within {result['limit_p99_ms']:g} ms: {load}, the least that was tried,"
        f" it is {late}"
    )
    error.add_note(
        "A higher --p99-ms, shorter texts, a smaller --beam-size, or a smaller model, or one at"
        " int8, may help, and so may a machine that does nothing else meanwhile."
    )
    raise error


def _known(options: LoadOptions) -> dict[str, int | None]:
    """Asks the server for its slots, its versions and their memory; it may not tell."""
    known: dict[str, int | None] = {"version_bytes": _version_bytes(options)}
    with suppress(errors.CallError), options.connect() as client:
        loaded = [model.slots for model in client.models() if model.slots]
        known |= {"slots": max(loaded, default=None), "versions": len(loaded)}
    return known


def _version_bytes(options: LoadOptions) -> int | None:
    """Returns the resident memory of the engines of the version that has most; None if unknown."""
    settings = options.settings()
    connection = Connection(options.address, MAX_MESSAGE_BYTES, settings["tls"], settings["token"])
    request = open_inference_pb2.ModelStatisticsRequest()
    with closing(connection.channel()) as channel, suppress(grpc.RpcError):
        stub: Any = open_inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelStatistics(request, metadata=connection.metadata(), timeout=_TIMEOUT_S)
        used = (sum(kind.byte_size for kind in each.memory_usage) for each in answer.model_stats)
        return max(used, default=0) or None
    return None
