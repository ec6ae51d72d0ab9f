"""The start of a server: its time, and the memory before and after all slots were in use."""

import tempfile
from pathlib import Path
from typing import Any

from bench.drivers.server_process import ServerProcess, seqserve_server
from bench.models import shipped_artifacts
from bench.requests import everyday
from bench.served import serve
from bench.tables import Table, shown, spread
from seqserve_server.artifact.manifest import Manifest

_MB = 1e6
_CALLERS = 64
_LOAD_S = 0.5


def measure(rounds: int, artifact: Path | None = None) -> dict[str, Any]:
    """Starts servers, of the shipped model if no artifact is given; its files are in memory."""
    artifact = artifact or shipped_artifacts()[0]
    manifest = Manifest.read(artifact)
    with tempfile.TemporaryDirectory() as place:
        command, log = seqserve_server(artifact, Path(place)), Path(place) / "log"
        starts = []
        for _ in range(rounds):
            with ServerProcess(command, log) as server:
                ready_mb = server.resident_bytes() / _MB
                serve(server, everyday(), _CALLERS, _LOAD_S)
                loaded_mb = server.resident_bytes() / _MB
                starts.append((server.ready_after_s, ready_mb, loaded_mb))
    figures = zip(("ready_s", "ready_mb", "loaded_mb"), zip(*starts, strict=True), strict=True)
    return {
        "model": manifest.label,
        "precision": manifest.precision,
        **{name: spread(values) for name, values in figures},
    }


def tables(report: dict[str, Any]) -> list[Table]:
    """Lays out what :func:`measure` returned."""
    memory = (f"{shown(report[name], 0)} MB" for name in ("ready_mb", "loaded_mb"))
    row = [f"{report['model']}, {report['precision']}", f"{shown(report['ready_s'])} s", *memory]
    return [Table(["a start", "ready after", "memory then", "memory after load"], [row])]
