"""What keeps a model from being loaded is told with what to do."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.engine.loading import load
from seqserve_server.engine.observer import Observer


def test_a_limit_on_threads_is_told(tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    limits = EngineLimits(workers=1, slots=2, max_queue=2, max_source_tokens_per_step=64)
    setup = Setup(tiny_artifact, Provider.CPU, 1, limits)
    with pytest.raises(ArtifactError, match=r"^tiny/1: the limit on threads .*: `ulimit -u`"):
        load(setup, lambda events: None, Observer())
