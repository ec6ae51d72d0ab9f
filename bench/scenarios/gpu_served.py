"""A GPU as callers see it: our server, from its first request on, with sources that never repeat.

The load comes from `seqserve load`, a closed loop, in separate processes. The report also has the
speed of the engine alone with as many rows.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.drivers.server_process import Server, ServerProcess
from bench.models import amend, random_sources
from bench.served import connections_for
from seqserve.processes import available_cores
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
    with tempfile.TemporaryDirectory(dir=artifact.parent) as place:
        folder = Path(place)
        texts = folder / "sources.txt"
        rows = random_sources(_SOURCES, seed=11, config=config)
        lines = (" ".join(f"t{token}" for token in row[:-1]) for row in rows)
        texts.write_text("\n".join(lines), encoding="utf-8")
        server = _server(artifact, folder / "models", callers, length, device)
        try:
            with ServerProcess(server, folder / "log") as process:
                result = _load(process.address, texts, callers)
                ready_s = process.ready_after_s
                front_cores = sum(process.front_cpu_s()) / result["duration"]
                first_token_s = _mean(process, "time_to_first_token_seconds")
                step_s = _mean(process, "step_duration_seconds")
        except (SystemExit, subprocess.CalledProcessError) as error:
            raise RuntimeError(str(error)) from error
    return {
        "ready_s": ready_s,
        "requests_per_s": result["request_throughput"],
        "tokens_per_s": length * result["request_throughput"],
        "p50_ms": result["median_e2el_ms"],
        "p99_ms": result["p99_e2el_ms"],
        "failed": result["failed"] + result["refused"],
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


def _load(address: str, texts: Path, callers: int) -> dict[str, Any]:
    processes = min(-(-callers // _CALLERS_A_PROCESS), max(1, available_cores() - _LEFT_CORES))
    connections = connections_for(ServeOptions().front_count(), processes)
    options = ["--target", address, "--dataset-path", str(texts), "--num-warmups", "0"]
    options += ["--max-concurrency", str(callers), "--processes", str(processes)]
    options += ["--connections", str(connections), "--duration", str(_SECONDS), "--json"]
    command = [sys.executable, "-m", "seqserve", "load", *options]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, Any] = json.loads(answer.stdout)
    return result
