import errno
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from seqserve.errors import InvalidArgument
from seqserve.processes import spawn
from seqserve_server.contract.errors import ArtifactError, EngineFault
from seqserve_server.corpus import processes
from seqserve_server.corpus.engine import EngineSettings
from seqserve_server.corpus.processes import ProcessPool
from seqserve_server.offline.offline import template_of

pytestmark = pytest.mark.slow

TEXTS = ["The coffee tastes music.", "Nobody paints eleven books?", "a"]


def settings(folder: Path, **options: int) -> EngineSettings:
    template = template_of(options)  # type: ignore[arg-type]
    return EngineSettings(model=str(folder), workers=1, slots=4, glossaries=None, template=template)


def test_a_wrong_option_ends_the_run(tiny_artifact: Path) -> None:
    with (
        closing(ProcessPool([settings(tiny_artifact, max_decoding_length=999)])) as pool,
        pytest.raises(InvalidArgument, match=r"options\.max_decoding_length: is 999"),
    ):
        pool.submit(TEXTS).result()


def test_a_model_that_cannot_be_loaded_is_reported(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").touch()
    with pytest.raises(ArtifactError, match=r"manifest\.json: not JSON"):
        ProcessPool([settings(tmp_path)] * 2)


def test_processes_end_where_another_one_cannot_be_started(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def spawn_one(*args: Any) -> Any:
        if started:
            raise OSError(errno.EAGAIN, "no more processes")
        started.append(spawn(*args))
        return started[0]

    monkeypatch.setattr(processes, "spawn", spawn_one)
    with pytest.raises(OSError, match="no more processes"):
        ProcessPool([settings(tiny_artifact)] * 2)
    assert not started[0].is_alive()


def test_a_process_that_is_killed_ends_the_run(tiny_artifact: Path) -> None:
    with closing(ProcessPool([settings(tiny_artifact)])) as pool:
        assert len(pool.submit(TEXTS).result()) == 3
        [pid] = pool.pids
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineFault, match="has ended by signal 9; the same command goes on"):
            pool.submit(TEXTS * 1000).result()
        with pytest.raises(EngineFault, match="has ended by signal 9"):
            pool.submit(TEXTS).result()
