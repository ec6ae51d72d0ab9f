"""A GPU as callers see it: our server, from its first request on, with sources that never repeat.

The load is a closed loop in separate processes. The report also has the speed of the engine alone
with as many rows.
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.drivers.server_process import Server, ServerProcess
from bench.models import amend, random_sources
from bench.served import connections_for
from seqserve.errors import SeqserveError
from seqserve.load.grpc_callers import GrpcCaller
from seqserve.load.load import Load, send
from seqserve.load.result import result_of
from seqserve.processes import available_cores
from seqserve.requests import generate_request
from seqserve_model.config import TransformerConfig
from seqserve_server.artifact.manifest import WEIGHTS, Manifest
from seqserve_server.front.config import ServeOptions

_SECONDS = 10.0
"""How long requests are sent. The first of them are those that a new server gets."""
_SOURCES = 50_000
_CALLERS_A_PROCESS = 32
_LEFT_CORES = 4
"""For the server."""


def served(
    artifact: Path, config: TransformerConfig, callers: int, length: int, device: str
) -> dict[str, Any]:
    """Starts a server and lets callers ask it, each for one answer after another.

    Returns:
        Answered requests and tokens a second, milliseconds of a request, and seconds until the
        server was ready.
    """
    rows = random_sources(_SOURCES, seed=11, config=config)
    texts = [" ".join(f"t{token}" for token in row[:-1]) for row in rows]
    with tempfile.TemporaryDirectory(dir=artifact.parent) as place:
        server = _server(artifact, Path(place, "models"), callers, length, device)
        try:
            with ServerProcess(server, Path(place, "log")) as process:
                result = _load(process.address, texts, callers)
                ready_s = process.ready_after_s
                front_cores = sum(process.front_cpu_s()) / result["duration"]
                first_token_s = _mean(process, "time_to_first_token_seconds")
                step_s = _mean(process, "step_duration_seconds")
        except (SystemExit, SeqserveError) as error:
            raise RuntimeError(str(error)) from error
    return {
        "ready_s": ready_s,
        "requests_per_s": result["request_throughput"],
        "tokens_per_s": length * result["request_throughput"],
        "p50_ms": result["median_e2el_ms"],
        "p99_ms": result["p99_e2el_ms"],
        "failed": result["failed"],
        "front_cores": front_cores,
        "first_token_ms": 1e3 * first_token_s,
        "step_us": 1e6 * step_s,
    }


def _mean(process: ServerProcess, name: str) -> float:
    total, count = (process.counter(f"seqserve_{name}_{part}") for part in ("sum", "count"))
    return total / count


def _server(artifact: Path, repository: Path, callers: int, length: int, device: str) -> Server:
    manifest = Manifest.read(artifact)
    place = repository / manifest.name / str(manifest.version)
    place.mkdir(parents=True)
    for file in artifact.iterdir():
        # The weights are large.
        (os.link if file.name == WEIGHTS else shutil.copy2)(file, place / file.name)
    amend(place, generation={"max_decoding_length": length, "min_decoding_length": length})
    arguments = ["serve", "--model-repository", str(repository), "--provider", device]
    arguments += ["--port", "0", "--metrics-port", "0", "--workers", "1"]
    arguments += ["--slots", str(max(callers, 8)), "--max-queue-s", "60", "--caller-share", "1"]
    return Server("seqserve", "seqserve", arguments)


def _load(address: str, texts: Sequence[str], callers: int) -> dict[str, Any]:
    processes = min(-(-callers // _CALLERS_A_PROCESS), max(1, available_cores() - _LEFT_CORES))
    connections = connections_for(ServeOptions().front_count(), processes)
    caller = GrpcCaller(address, generate_request(""), streamed=False, connections=connections)
    load = Load(sources=texts, seconds=_SECONDS, in_flight=callers)
    sent = send(load, caller, processes, lambda _: None)
    return result_of(sent, {}, seconds=_SECONDS, streamed=False, goodput={})
