"""Before it takes calls, a version says what it said at export."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from seqserve_server.artifact.records import SelfTest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.engine.loading import run_self_test
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.runtime import Runtime

SOURCE = "The coffee tastes music."


class StepEvents:
    """A runtime whose manifest says something else."""

    def __init__(self, runtime: Runtime, self_test: SelfTest | None) -> None:
        self._runtime = runtime
        self.manifest = replace(runtime.manifest, self_test=self_test)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


def run(offline: LocalEngine, self_test: SelfTest | None) -> None:
    told: Any = StepEvents(offline.runtime, self_test)
    run_self_test(told, offline.tokenizer)


def test_same_target_passes(tiny_offline: LocalEngine) -> None:
    run(tiny_offline, SelfTest(source=SOURCE, target=tiny_offline([SOURCE])[0]))


def test_model_without_a_self_test_passes() -> None:
    nothing: Any = SimpleNamespace(manifest=SimpleNamespace(self_test=None))
    run_self_test(nothing, nothing)


def test_error_names_both_targets(tiny_offline: LocalEngine) -> None:
    found = tiny_offline([SOURCE])[0]
    with pytest.raises(ArtifactError) as caught:
        run(tiny_offline, SelfTest(source=SOURCE, target="Musik"))
    message = str(caught.value)
    assert message.startswith("tiny/1: self_test: ") and "'Musik'" in message
    assert repr(found) in message


def test_source_that_does_not_fit(tiny_offline: LocalEngine) -> None:
    with pytest.raises(ArtifactError, match=r"self_test\.source has \d+ tokens"):
        run(tiny_offline, SelfTest(source="long " * 100, target=""))
