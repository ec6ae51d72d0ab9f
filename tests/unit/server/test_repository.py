"""The models of a folder: what is loaded, what is refused and why, and which one a call means."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import onnxruntime
import pytest

from seqserve.errors import OptionError
from seqserve_server.config import LogFormat, LogLevel
from seqserve_server.engine.limits import EngineLimits
from seqserve_server.engine.mail import Setup
from seqserve_server.engine.remote import RemoteEngine
from seqserve_server.engine_process import EngineProcess
from seqserve_server.errors import ModelNotFound, ModelUnavailable, ProviderError, StartupError
from seqserve_server.metrics import Metrics
from seqserve_server.provider import Provider
from seqserve_server.repository import Entry, Loader, ModelState, Repository, ServedModel


def entry(name: str, version: int, *, sound: bool = True) -> Entry:
    if not sound:
        return Entry(name=name, version=version, state=ModelState.FAILED, reason="is damaged")
    model = cast(ServedModel, object())
    return Entry(name=name, version=version, state=ModelState.READY, model=model)


def test_versions_are_sorted_as_numbers() -> None:
    entries = [entry("b", 1), entry("a", 10), entry("a", 9)]
    assert [entry.label for entry in Repository(entries).entries] == ["a/9", "a/10", "b/1"]


def test_highest_sound_version_is_meant() -> None:
    repository = Repository([entry("m", 1), entry("m", 2), entry("m", 10, sound=False)])
    assert repository.find("m").version == 2
    assert repository.resolve("m", 1) is repository.entries[0].model


def test_only_model_is_the_default() -> None:
    repository = Repository([entry("m", 1), entry("ruin", 1, sound=False)])
    assert repository.default == "m"
    assert repository.find("").label == "m/1"


def test_of_several_models_one_must_be_named() -> None:
    repository = Repository([entry("a", 1), entry("b", 1)])
    with pytest.raises(ModelNotFound, match="no default; there are a/1, b/1"):
        repository.resolve("")
    assert Repository(repository.entries, "b").find("").name == "b"


@pytest.mark.parametrize(("name", "version"), [("x", 0), ("m", 3), ("M", 0)])
def test_unknown_names_what_there_is(name: str, version: int) -> None:
    with pytest.raises(ModelNotFound, match=f"'{name}'.*; there are m/1, m/2"):
        Repository([entry("m", 1), entry("m", 2)]).resolve(name, version)


def test_answer_is_short_whatever_is_asked_and_there() -> None:
    repository = Repository([entry(f"model-{number}", 1) for number in range(1000)])
    with pytest.raises(ModelNotFound) as caught:
        repository.resolve("x" * 100_000)
    assert len(str(caught.value)) < 1000
    assert "980 more" in str(caught.value)


def test_broken_version_is_unavailable() -> None:
    repository = Repository([entry("m", 1, sound=False), entry("n", 1)])
    with pytest.raises(ModelUnavailable, match="m/1"):
        repository.resolve("m")


def test_nothing_sound() -> None:
    with pytest.raises(StartupError, match="m/1: is damaged"):
        Repository([entry("m", 1, sound=False)])


def test_default_must_be_sound() -> None:
    with pytest.raises(OptionError, match=r"--default-model: 'n'.* there are m"):
        Repository([entry("m", 1), entry("n", 1, sound=False)], "n")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


class Processes:
    """Launches real ones, and knows which of them are left."""

    def __init__(self) -> None:
        self.launched: list[Noted] = []

    def launch(self, setup: Setup) -> Noted:
        self.launched.append(Noted(setup, LogFormat.TEXT, LogLevel.INFO))
        return self.launched[-1]

    @property
    def left(self) -> int:
        return sum(not process.has_ended for process in self.launched)


class Noted(EngineProcess):
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
def loader(metrics: Metrics, processes: Processes) -> Loader:
    return loader_of(metrics, processes)


def loader_of(
    metrics: Metrics, processes: Processes, *, slots: int = 2, provider: Provider = Provider.CPU
) -> Loader:
    limits = EngineLimits(workers=1, slots=slots, max_queue=2, max_source_tokens_per_step=64)
    return Loader(
        provider=provider, threads=1, limits=limits, launch=processes.launch, metrics=metrics
    )


@pytest.fixture
def models(tmp_path: Path, tiny_artifact: Path) -> Path:
    """A repository of its own, with tiny/1 in it."""
    place = tmp_path / "models"
    shutil.copytree(tiny_artifact.parent.parent, place)
    return place


def add_version(models: Path, version: int, **changes: Any) -> Path:
    """Copies tiny/1; the manifest says the new version and what else it is told."""
    folder = models / "tiny" / str(version)
    shutil.copytree(models / "tiny" / "1", folder)
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version} | changes))
    return folder


def loads(metrics: Metrics, result: str) -> float | None:
    return metrics.registry.get_sample_value("seqserve_model_loads_total", {"result": result})


def test_sound_versions_are_loaded(
    loader: Loader, metrics: Metrics, models: Path, processes: Processes
) -> None:
    add_version(models, 2)
    repository = loader.load(models)
    assert [entry.label for entry in repository.entries] == ["tiny/1", "tiny/2"]
    assert len(repository.models()) == 2
    assert repository.find("").version == 2
    assert loads(metrics, "success") == 2
    # Two engines, one model: one series.
    slots = metrics.registry.get_sample_value("seqserve_slots", {"model": "tiny"})
    assert slots == 4
    assert len(processes.launched) == processes.left == 2
    for model in repository.models():
        model.engine.discard()
    assert processes.left == 0


@pytest.mark.parametrize("file", ["decoder.onnx", "tokenizer.json", "manifest.json"])
def test_damaged_version_is_named_and_left_out(
    loader: Loader, metrics: Metrics, models: Path, processes: Processes, file: str
) -> None:
    folder = add_version(models, 2)
    with (folder / file).open("ab") as damaged:
        damaged.write(b"!")
    repository = loader.load(models)
    assert repository.find("tiny", 0).version == 1
    broken = repository.find("tiny", 2)
    assert broken.state is ModelState.FAILED and file in broken.reason
    assert (loads(metrics, "success"), loads(metrics, "failure")) == (1, 1)
    assert [process.has_ended for process in processes.launched] == [False, True]


def test_missing_file_is_named(loader: Loader, models: Path) -> None:
    folder = add_version(models, 2)
    (folder / "encoder.onnx").unlink()
    assert "encoder.onnx" in loader.load(models).find("tiny", 2).reason


def test_version_that_only_the_process_can_tell_is_broken(loader: Loader, models: Path) -> None:
    """Sound by every hash, but the caches laid out by its manifest do not fit the graph."""
    manifest = json.loads((models / "tiny" / "1" / "manifest.json").read_text())
    add_version(models, 2, architecture=manifest["architecture"] | {"heads": 3})
    broken = loader.load(models).find("tiny", 2)
    assert broken.state is ModelState.FAILED
    assert broken.reason.startswith("tiny/2: cannot be run")


def test_version_whose_process_ends_by_itself(
    metrics: Metrics, models: Path, processes: Processes
) -> None:
    class Dying(Processes):
        def launch(self, setup: Setup) -> Noted:
            process = processes.launch(setup)
            if setup.folder.name == "2":
                os.kill(process.pid, signal.SIGKILL)
            return process

    add_version(models, 2)
    repository = loader_of(metrics, Dying()).load(models)
    assert "ended while it loaded" in repository.find("tiny", 2).reason
    assert repository.find("tiny").version == 1


def test_versions_load_beside_each_other(
    metrics: Metrics, models: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_version(models, 2)
    launched: list[int] = []

    def load(engine: RemoteEngine) -> None:
        launched.append(len(processes.launched))
        real(engine)

    real = RemoteEngine.load
    monkeypatch.setattr(RemoteEngine, "load", load)
    loader_of(metrics, processes).load(models)
    assert launched == [2, 2], "one was waited for before another began"


def test_manifest_of_another_model_is_refused(loader: Loader, models: Path) -> None:
    add_version(models, 2, name="other")
    assert "other/2" in loader.load(models).find("tiny", 2).reason


def test_what_is_no_version_is_passed_over(loader: Loader, models: Path) -> None:
    (models / "README.md").write_text("of the models")
    (models / "tiny" / "notes").mkdir()
    (models / "tiny" / "0").mkdir()
    (models / "tiny" / "02").mkdir()
    (models / "tiny" / "3").write_text("a file")
    (models / ".git" / "1").mkdir(parents=True)
    assert [entry.label for entry in loader.load(models).entries] == ["tiny/1"]


def test_caches_that_do_not_fit(models: Path, metrics: Metrics, processes: Processes) -> None:
    add_version(models, 2)
    with pytest.raises(StartupError, match="--slots"):
        loader_of(metrics, processes, slots=1 << 50).load(models)
    assert len(processes.launched) == 2 and processes.left == 0


def test_provider_that_is_not_there(models: Path, metrics: Metrics, processes: Processes) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.raises(ProviderError, match=r"seqserve\[server-gpu\]"):
        loader_of(metrics, processes, provider=Provider.CUDA).load(models)
    assert processes.left == 0


def test_default_that_is_not_there_leaves_no_process(
    loader: Loader, models: Path, processes: Processes
) -> None:
    with pytest.raises(OptionError, match="--default-model"):
        loader.load(models, "other")
    assert len(processes.launched) == 1 and processes.left == 0


def test_folder_that_is_not_there(loader: Loader, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--model-repository"):
        loader.load(tmp_path / "nowhere")


def test_folder_without_models(loader: Loader, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"<name>/<version>/"):
        loader.load(tmp_path)
