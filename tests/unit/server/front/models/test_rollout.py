"""The versions that a server begins with: what is loaded, what is refused and why."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from seqserve.errors import OptionError
from seqserve_server.contract.errors import ProviderError, StartupError
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.engine_client.process import EngineProcess
from seqserve_server.front.models.deployment import Loader
from seqserve_server.front.models.lifecycle import ModelState
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process.logs import LogFormat, LogLevel

pytestmark = pytest.mark.slow


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


class Processes:
    """Launches real ones, and knows which of them are left."""

    def __init__(self) -> None:
        self.launched: list[RecordedProcess] = []

    def launch(self, setup: Setup) -> RecordedProcess:
        self.launched.append(RecordedProcess(setup, LogFormat.TEXT, LogLevel.INFO))
        return self.launched[-1]

    @property
    def left(self) -> int:
        return sum(not process.has_ended for process in self.launched)


class RecordedProcess(EngineProcess):
    has_ended = False

    def end(self) -> None:
        super().end()
        self.has_ended = True


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    for process in processes.launched:
        process.channel.close()
        process.end()


@pytest.fixture
def make(models: Path, metrics: Metrics, processes: Processes) -> Make:
    return Make(models, metrics, processes)


class Make:
    """Makes rollouts over the folder of a test."""

    def __init__(self, models: Path, metrics: Metrics, processes: Processes) -> None:
        self.models, self.metrics, self.processes = models, metrics, processes

    def __call__(
        self,
        *,
        slots: int = 2,
        provider: Provider = Provider.CPU,
        repository: Path | None = None,
        generation: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Rollout:
        limits = EngineLimits(workers=1, slots=slots, max_queue=2, max_source_tokens_per_step=64)
        loader = Loader(
            repository=repository or self.models,
            provider=provider,
            threads=1,
            limits=limits,
            launch=self.processes.launch,
            generation=generation or {},
        )
        return Rollout(Repository(), loader, self.metrics, **settings)

    def opened(self, **settings: Any) -> Repository:
        rollout = self(**settings)
        rollout.open()
        return rollout.repository


@pytest.fixture
def models(tmp_path: Path, tiny_artifact: Path) -> Path:
    """A repository of its own, with tiny/1 in it."""
    place = tmp_path / "models"
    shutil.copytree(tiny_artifact.parent.parent, place)
    return place


def add_version(models: Path, version: int, *, of: str = "tiny", **changes: Any) -> Path:
    """Copies tiny/1; the manifest says the new version and what else it is told."""
    folder = models / of / str(version)
    shutil.copytree(models / "tiny" / "1", folder)
    path = folder / "manifest.json"
    told = {"version": version} | changes
    path.write_text(json.dumps(json.loads(path.read_text()) | told))
    return folder


def loads(metrics: Metrics, result: str) -> float | None:
    return metrics.registry.get_sample_value("seqserve_model_loads_total", {"result": result})


def test_options_of_the_server_stand_behind_those_of_a_manifest(make: Make, models: Path) -> None:
    add_version(models, 2, generation={"segmentation": "lines", "beam_size": 2})
    repository = make.opened(generation={"segmentation": "sentences"})
    found = [repository.resolve("tiny", version, "").manifest.generation for version in (1, 2)]
    assert found == [{"segmentation": "sentences"}, {"segmentation": "lines", "beam_size": 2}]


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ({"beams": 2}, "beams"),
        ({"segmentation": "words"}, "one of none, lines, sentences"),
        ({"glossary": "house"}, "glossary: cannot be recommended"),
        ({"length_penalty": -1}, "length_penalty: is -1; it must be at least 0"),
    ],
)
def test_recommended_options_that_are_wrong_are_refused(
    make: Make, models: Path, generation: dict[str, Any], message: str
) -> None:
    add_version(models, 2, generation=generation)
    repository = make.opened()
    [failed] = [entry for entry in repository.entries if entry.version == 2]
    assert failed.state is ModelState.FAILED
    assert message in failed.reason


def test_sound_versions_are_loaded(
    make: Make, metrics: Metrics, models: Path, processes: Processes
) -> None:
    add_version(models, 2)
    repository = make.opened()
    assert [entry.label for entry in repository.entries] == ["tiny/1", "tiny/2"]
    assert len(repository.models()) == 2
    assert repository.find("").version == 2
    assert loads(metrics, "success") == 2
    for version in ("1", "2"):
        labels = {"model": "tiny", "version": version}
        assert metrics.registry.get_sample_value("seqserve_slots", labels) == 2
    assert len(processes.launched) == processes.left == 2
    for model in repository.models():
        model.engine.terminate()
    assert processes.left == 0


@pytest.mark.parametrize("file", ["decoder.onnx", "tokenizer.json", "manifest.json"])
def test_damaged_version_is_named_and_left_out(
    make: Make, metrics: Metrics, models: Path, processes: Processes, file: str
) -> None:
    folder = add_version(models, 2)
    with (folder / file).open("ab") as damaged:
        damaged.write(b"!")
    repository = make.opened()
    assert repository.find("tiny", 0).version == 1
    broken = repository.find("tiny", 2)
    assert broken.state is ModelState.FAILED and file in broken.reason
    assert (loads(metrics, "success"), loads(metrics, "failure")) == (1, 1)
    # The highest begins first.
    assert [process.has_ended for process in processes.launched] == [True, False]


def test_missing_file_is_named(make: Make, models: Path) -> None:
    folder = add_version(models, 2)
    (folder / "encoder.onnx").unlink()
    assert "encoder.onnx" in make.opened().find("tiny", 2).reason


def test_version_that_only_the_process_can_tell_is_broken(make: Make, models: Path) -> None:
    """Sound by every hash, but the caches laid out by its manifest do not fit the graph."""
    manifest = json.loads((models / "tiny" / "1" / "manifest.json").read_text())
    add_version(models, 2, architecture=manifest["architecture"] | {"heads": 3})
    broken = make.opened().find("tiny", 2)
    assert broken.state is ModelState.FAILED
    assert broken.reason.startswith("tiny/2: cannot be run")


@pytest.mark.parametrize("length", [1_000_000_000, 2_147_483_647])
def test_version_whose_caches_do_not_fit_keeps_no_other_from_service(
    make: Make, models: Path, length: int
) -> None:
    add_version(models, 2, limits={"max_source_length": length, "max_target_length": length})
    repository = make.opened()
    reason = repository.find("tiny", 2).reason
    assert reason.startswith("tiny/2: its caches of ") and "fewer --slots" in reason
    assert repository.find("tiny").version == 1


def test_version_whose_process_ends_by_itself(
    metrics: Metrics, models: Path, processes: Processes
) -> None:
    class Dying(Processes):
        def launch(self, setup: Setup) -> RecordedProcess:
            process = processes.launch(setup)
            if setup.folder.name == "2":
                os.kill(process.pid, signal.SIGKILL)
            return process

    add_version(models, 2)
    repository = Make(models, metrics, Dying()).opened()
    assert "ended while it loaded" in repository.find("tiny", 2).reason
    assert repository.find("tiny").version == 1


def test_versions_load_beside_each_other(
    make: Make, models: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_version(models, 2)
    launched: list[int] = []

    def load(engine: RemoteEngine) -> None:
        launched.append(len(processes.launched))
        real(engine)

    real = RemoteEngine.load
    monkeypatch.setattr(RemoteEngine, "load", load)
    make.opened()
    assert launched == [2, 2], "one was waited for before another began"


def test_manifest_of_another_model_is_refused(make: Make, models: Path) -> None:
    add_version(models, 2, name="other")
    assert "other/2" in make.opened().find("tiny", 2).reason


def test_caches_that_do_not_fit(make: Make, models: Path, processes: Processes) -> None:
    add_version(models, 2)
    with pytest.raises(StartupError, match="--slots"):
        make.opened(slots=1 << 50)
    assert len(processes.launched) == 2 and processes.left == 0


def test_provider_that_is_not_there(make: Make, processes: Processes) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.raises(ProviderError, match=r"pip install 'seqserve\[server-gpu\]'"):
        make.opened(provider=Provider.CUDA)
    assert processes.left == 0


def test_default_that_is_not_there_starts_no_process(make: Make, processes: Processes) -> None:
    with pytest.raises(OptionError, match="--default-model: 'other' is not in"):
        make().open("other")
    assert processes.launched == []


def test_the_folder_may_name_the_default(make: Make, models: Path) -> None:
    for name in ("aaa", "zzz"):
        add_version(models, 1, of=name, name=name)
    assert make.opened().default == ""
    (models / "default").write_text("zzz\n")
    assert make.opened().default == "zzz"
    rollout = make()
    rollout.open("aaa")
    assert rollout.repository.default == "aaa"


def test_a_model_may_have_the_name_of_that_file(make: Make, models: Path) -> None:
    (models / "tiny").rename(models / "default")
    manifest = models / "default" / "1" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"name": "default"}))
    assert make.opened().default == "default"


def test_default_of_the_folder_that_does_not_fit(
    make: Make, models: Path, processes: Processes
) -> None:
    (models / "default").write_text("other")
    with pytest.raises(OptionError, match="default: 'other' is not in the repository"):
        make().open()
    assert processes.launched == []


def test_default_that_fails_leaves_no_process(
    make: Make, models: Path, processes: Processes
) -> None:
    # Its manifest has the name of another model.
    shutil.copytree(models / "tiny", models / "other")
    with pytest.raises(OptionError, match="--default-model: 'other' is not ready"):
        make().open("other")
    assert processes.launched and processes.left == 0


def test_only_as_many_as_are_kept_are_loaded(
    make: Make, models: Path, processes: Processes
) -> None:
    for version in (2, 3):
        add_version(models, version)
    (models / "tiny" / "3" / "encoder.onnx").unlink()
    repository = make.opened(keep=1)
    states = [entry.state for entry in repository.entries]
    # The highest is broken, so that the one before it takes its place.
    assert states == [ModelState.AVAILABLE, ModelState.READY, ModelState.FAILED]
    assert len(processes.launched) == 2


def test_link_out_of_the_repository_is_refused(make: Make, models: Path, tmp_path: Path) -> None:
    add_version(models, 2).rename(tmp_path / "elsewhere")
    (models / "tiny" / "2").symlink_to(tmp_path / "elsewhere")
    add_version(models, 4)
    (models / "tiny" / "3").symlink_to(models / "tiny" / "4")
    repository = make.opened()
    outside, inside = repository.find("tiny", 2), repository.find("tiny", 3)
    assert outside.state is ModelState.FAILED and "leads out of the repository" in outside.reason
    # Within the repository a link is as good as a folder, but this one has the wrong name.
    assert "its manifest is of tiny/4" in inside.reason
    assert repository.find("tiny", 4).state is ModelState.READY


@pytest.mark.parametrize(
    ("traffic", "says"), [({"other": {1: 1}}, "'other'"), ({"tiny": {7: 1}}, "version 7")]
)
def test_traffic_to_what_is_not_there(
    make: Make, traffic: dict[str, dict[int, int]], says: str
) -> None:
    with pytest.raises(OptionError, match=f"--traffic: .*{says}"):
        make().open(traffic=traffic)


def test_version_that_says_something_else_than_at_export(make: Make, models: Path) -> None:
    """Sound by every hash, and it runs; only its words are not those that were proven."""
    add_version(models, 2, self_test={"source": "Nobody", "target": "somebody"})
    broken = make.opened().find("tiny", 2)
    assert broken.state is ModelState.FAILED
    assert "self_test: 'Nobody' gave" in broken.reason
