"""What ``seqserve load`` costs itself, and how much one process of it can send.

The server does nothing (:mod:`bench.drivers.null_server`), in a process of its own. A closed loop
shows the most that both can do; an open loop, how late the generator is at a rate.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.calls import caller_of
from bench.drivers.server_process import Server, ServerProcess
from bench.sentences import everyday
from bench.tables import Table
from seqserve.load.answer import Caller
from seqserve.load.http_caller import HttpCaller, HttpForm
from seqserve.load.load import Load, send
from seqserve.load.result import result_of

_MODULE = "bench.drivers.null_server"
_FORM = HttpForm(path="/v1/generate", text_field="source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured, and for how long."""

    rate_per_s: float = 2000.0
    """Of the open loop; streams have a quarter of it, for they are ten messages each."""
    in_flight: int = 32
    """In the closed loop."""
    seconds: float = 3.0
    """Of each loop in each round."""
    rounds: int = 3


def measure(plan: Plan) -> dict[str, Any]:
    """Runs both loops against a server of each kind, by turns.

    Returns:
        Medians of the rounds, by the way to call.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Server("null", _MODULE, []), Path(folder) / "grpc.log") as grpc,
        ServerProcess(Server("null", _MODULE, ["--http"]), Path(folder) / "http.log") as http,
    ):
        callers: dict[str, Caller] = {
            "gRPC": caller_of(grpc.address),
            "gRPC, streams of 10 pieces": caller_of(grpc.address, streamed=True),
            "HTTP": HttpCaller(http.address, _FORM),
        }
        rounds = [
            {name: _measured(caller, name, plan) for name, caller in callers.items()}
            for _ in range(plan.rounds)
        ]
    return {
        "plan": asdict(plan),
        "ways": {
            name: {
                key: statistics.median(round_[name][key] for round_ in rounds)
                for key in rounds[0][name]
            }
            for name in callers
        },
    }


def _measured(caller: Caller, name: str, plan: Plan) -> dict[str, float]:
    rate_per_s = plan.rate_per_s / 4 if "streams" in name else plan.rate_per_s
    shape = Load(sources=everyday(), seconds=plan.seconds, in_flight=plan.in_flight, warm_ups=100)
    closed = _sent(shape, caller)
    opened = _sent(
        Load(sources=everyday(), seconds=plan.seconds, rate_per_s=rate_per_s, warm_ups=100), caller
    )
    return {
        "most_per_s": closed["request_throughput"],
        "cpu_us": closed["generator_cpu_us_per_request"],
        "asked_per_s": rate_per_s,
        "sent_per_s": opened["offered_throughput"],
        "open_cpu_us": opened["generator_cpu_us_per_request"],
        "late_p50_ms": opened["median_lateness_ms"],
        "late_p99_ms": opened["p99_lateness_ms"],
    }


def _sent(load: Load, caller: Caller) -> Mapping[str, Any]:
    sent = send(load, caller, 1, lambda _: None)
    return result_of(sent, {}, seconds=load.seconds, streamed=False, goodput={})


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure` returned."""
    rows = [
        [
            name,
            f"{way['most_per_s']:,.0f}",
            f"{way['cpu_us']:,.0f}",
            f"{way['sent_per_s']:,.0f} of {way['asked_per_s']:,.0f}",
            f"{way['open_cpu_us']:,.0f}",
            f"{way['late_p50_ms']:.2f}, {way['late_p99_ms']:.1f}",
        ]
        for name, way in report["ways"].items()
    ]
    head = [
        "one process of `seqserve load`, a server that does nothing",
        f"most, {report['plan']['in_flight']} in flight, 1/s",
        "CPU µs a request",
        "open loop, 1/s",
        "CPU µs a request",
        "late by, p50, p99, ms",
    ]
    return [Table(head, rows)]
