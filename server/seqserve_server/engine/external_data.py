"""Finds the files that a graph takes its weights from, without running it.

A graph may name any path for them, and ONNX Runtime opens it: older releases wherever it leads,
newer ones anywhere in the graph's folder. So the names are compared with the manifest's first.
Source: onnx/onnx.proto of https://github.com/onnx/onnx, and docs/ExternalData.md there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from google.protobuf.message import DecodeError, Message

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine.graph_messages import ENTRY, MODEL


def check_references(path: Path, files: Collection[str]) -> None:
    """Refuses a graph that takes weights from a file which was not checked.

    Raises:
        ArtifactError: It does, or is no graph.
    """
    try:
        model = MODEL.FromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise ArtifactError(f"{path}: cannot be read as a graph: {error}") from None
    for name in _locations(model):
        if name not in files:
            raise ArtifactError(
                f"{path}: takes weights from {name!r}, which its manifest does not name; export"
                " the model again"
            )


def _locations(message: Message) -> Iterator[str]:
    """Yields the file names in a message, in whatever part of it."""
    if isinstance(message, ENTRY):
        if message.key == "location":
            yield message.value
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if isinstance(value, Message) else value:
                yield from _locations(part)
