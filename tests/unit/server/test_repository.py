"""The models of a folder: what is loaded, what is refused and why, and which one a call means."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from seqserve.errors import OptionError
from seqserve_server.engine.engine import EngineLimits
from seqserve_server.errors import ModelNotFound, ModelUnavailable, StartupError
from seqserve_server.metrics import Metrics
from seqserve_server.repository import Entry, Loader, ModelState, Repository, ServedModel
from seqserve_server.runtime import Provider


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


@pytest.fixture
def loader(metrics: Metrics) -> Loader:
    limits = EngineLimits(workers=1, slots=2, max_queue=2, max_source_tokens_per_step=64)
    return Loader(
        provider=Provider.CPU,
        threads=1,
        limits=limits,
        deliver=lambda events: None,
        metrics=metrics,
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


def test_sound_versions_are_loaded(loader: Loader, metrics: Metrics, models: Path) -> None:
    add_version(models, 2)
    repository = loader.load(models)
    assert [entry.label for entry in repository.entries] == ["tiny/1", "tiny/2"]
    assert len(repository.models()) == 2
    assert repository.find("").version == 2
    assert loads(metrics, "success") == 2
    # Two engines, one model: one series.
    slots = metrics.registry.get_sample_value("seqserve_slots", {"model": "tiny"})
    assert slots == 4


@pytest.mark.parametrize("file", ["decoder.onnx", "tokenizer.json", "manifest.json"])
def test_damaged_version_is_named_and_left_out(
    loader: Loader, metrics: Metrics, models: Path, file: str
) -> None:
    folder = add_version(models, 2)
    with (folder / file).open("ab") as damaged:
        damaged.write(b"!")
    repository = loader.load(models)
    assert repository.find("tiny", 0).version == 1
    broken = repository.find("tiny", 2)
    assert broken.state is ModelState.FAILED and file in broken.reason
    assert (loads(metrics, "success"), loads(metrics, "failure")) == (1, 1)


def test_missing_file_is_named(loader: Loader, models: Path) -> None:
    folder = add_version(models, 2)
    (folder / "encoder.onnx").unlink()
    assert "encoder.onnx" in loader.load(models).find("tiny", 2).reason


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


def test_caches_that_do_not_fit(models: Path, metrics: Metrics) -> None:
    limits = EngineLimits(workers=1, slots=1 << 50, max_queue=2, max_source_tokens_per_step=64)
    loader = Loader(
        provider=Provider.CPU,
        threads=1,
        limits=limits,
        deliver=lambda events: None,
        metrics=metrics,
    )
    with pytest.raises(StartupError, match="--slots"):
        loader.load(models)


def test_folder_that_is_not_there(loader: Loader, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--model-repository"):
        loader.load(tmp_path / "nowhere")


def test_folder_without_models(loader: Loader, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"<name>/<version>/"):
        loader.load(tmp_path)
