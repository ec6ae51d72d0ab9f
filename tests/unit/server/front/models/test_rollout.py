from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import onnxruntime
import pytest
from tests.support.engine_loss import engines_stopped

from seqserve.errors import OptionError
from seqserve_server.contract.errors import ProviderError, StartupError
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.front.engine_client.client import EngineProcess, RemoteEngine
from seqserve_server.front.models.lifecycle import ModelState
from seqserve_server.front.models.loader import Loader
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process.logs import LogFormat, LogLevel

pytestmark = pytest.mark.slow


class RecordedProcess(EngineProcess):
    has_ended = False

    def end(self) -> None:
        super().end()
        self.has_ended = True


class Make:
    """Makes rollouts over a folder with ``tiny/1`` in it."""

    def __init__(self, models: Path) -> None:
        self.models = models
        self.metrics = Metrics()
        self.launched: list[RecordedProcess] = []
        """Real ones."""

    def launch(self, setup: Setup) -> RecordedProcess:
        self.launched.append(RecordedProcess(setup, LogFormat.TEXT, LogLevel.INFO))
        return self.launched[-1]

    @property
    def left(self) -> int:
        return sum(not process.has_ended for process in self.launched)

    def __call__(
        self,
        *,
        slots: int = 2,
        provider: Provider = Provider.CPU,
        generation: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Rollout:
        limits = EngineLimits(workers=1, slots=slots, max_queue=2, max_source_tokens_per_step=64)
        loader = Loader(
            repository=self.models,
            provider=provider,
            threads=1,
            limits=limits,
            launch=self.launch,
            generation=generation or {},
        )
        return Rollout(Repository(), loader, self.metrics, **settings)

    def opened(self, *default: str, **settings: Any) -> Repository:
        rollout = self(**settings)
        rollout.open(*default)
        return rollout.repository

    def loads(self, result: str) -> float | None:
        labels = {"result": result}
        return self.metrics.registry.get_sample_value("seqserve_model_loads_total", labels)


@contextmanager
def making(folder: Path, tiny_artifact: Path) -> Iterator[Make]:
    made = Make(folder / "models")
    shutil.copytree(tiny_artifact.parent.parent, made.models)
    yield made
    for process in made.launched:
        process.channel.close()
        process.end()


@pytest.fixture
def make(tmp_path: Path, tiny_artifact: Path) -> Iterator[Make]:
    with making(tmp_path, tiny_artifact) as made:
        yield made


def add_version(models: Path, version: int, *, of: str = "tiny", **changes: Any) -> Path:
    """Copies tiny/1; the manifest says the new version and what else it is told."""
    folder = models / of / str(version)
    shutil.copytree(models / "tiny" / "1", folder)
    change_manifest(folder, version=version, **changes)
    return folder


def change_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(("workers", "given", "processes"), [(4, None, 1), (5, None, 3), (5, 1, 1)])
def test_small_model_has_a_process_for_every_two_of_many_workers(
    make: Make, workers: int, given: int | None, processes: int
) -> None:
    limits = EngineLimits(workers=workers, slots=8, max_queue=2, max_source_tokens_per_step=64)
    loader = Loader(
        repository=make.models,
        provider=Provider.CPU,
        threads=1,
        limits=limits,
        launch=mock.Mock(),
        processes=given,
    )
    assert len(loader.begin("tiny", 1)) == processes


def test_options_of_the_server_stand_behind_those_of_a_manifest(make: Make) -> None:
    add_version(make.models, 2, generation={"segmentation": "lines", "beam_size": 2})
    repository = make.opened(generation={"segmentation": "sentences"})
    found = [entry.manifest and entry.manifest.generation for entry in repository.entries]
    assert found == [{"segmentation": "sentences"}, {"segmentation": "lines", "beam_size": 2}]


# ---- versions that are left out


def damaged(file: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with (folder / file).open("ab") as opened:
            opened.write(b"!")

    return damage


def says(**changes: Any) -> Callable[[Path], None]:
    """The manifest says something else; all of it is sound by every hash."""
    return lambda folder: change_manifest(folder, **changes)


def divides(**parts: Any) -> Callable[[Path], None]:
    """Its tokenizer has other parts, and the manifest their hash."""

    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | parts))
        manifest = json.loads((folder / "manifest.json").read_text())
        content = path.read_bytes()
        known = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        files = manifest["files"]
        change_manifest(folder, files=files | {path.name: files[path.name] | known})

    return change


DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
DOUBLINGS = {"type": "Sequence", "normalizers": [DOUBLING] * 33}
UNKNOWN = [{"SpecialToken": {"id": "no", "type_id": 0}}]
FRONT = {"type": "TemplateProcessing", "single": UNKNOWN, "pair": [], "special_tokens": {}}
EMPTY = {"type": "FixedLength", "length": 0}


def more_heads(folder: Path) -> None:
    """The caches laid out by the manifest do not fit the graph, which only the process can tell."""
    shape = json.loads((folder / "manifest.json").read_text())["architecture"]
    change_manifest(folder, architecture=shape | {"heads": 3})


def leads_out(folder: Path) -> None:
    outside = folder.parents[2] / "elsewhere"
    folder.rename(outside)
    folder.symlink_to(outside)


def leads_to_another(folder: Path) -> None:
    """Within the repository a link is as good as a folder, but this one has the wrong name."""
    shutil.rmtree(folder)
    folder.symlink_to(folder.with_name("1"))


LENGTHS = ("max_source_length", "max_target_length")
BROKEN: list[tuple[Callable[[Path], None], str]] = [
    (damaged("decoder.onnx"), "decoder.onnx: sha256"),
    (damaged("tokenizer.json"), "tokenizer.json: sha256"),
    (damaged("manifest.json"), "manifest.json: not JSON"),
    (says(generation={"beams": 2}), "beams"),
    (says(generation={"segmentation": "words"}), "one of none, lines, sentences"),
    (says(generation={"glossary": "house"}), "glossary: cannot be recommended"),
    (says(generation={"length_penalty": -5}), "length_penalty: is -5; it must be at least -4"),
    (says(name="other"), "other/10"),
    (says(self_test={"source": "Nobody", "target": "somebody"}), "self_test: 'Nobody' gave"),
    (says(limits=dict.fromkeys(LENGTHS, 1_000_000_000)), "/12: its caches of "),
    (says(limits=dict.fromkeys(LENGTHS, 2_147_483_647)), "fewer --slots"),
    (more_heads, "tiny/14: cannot be run"),
    (divides(post_processor=FRONT), "tokenizer: the library failed: no entry found"),
    (divides(pre_tokenizer=EMPTY), "tokenizer: the library failed: chunk size must be"),
    (
        divides(normalizer=DOUBLINGS),
        "tokenizer.json: Replace of its normalizers may make more than 4,096",
    ),
    (leads_out, "leads out of the repository"),
    (leads_to_another, "its manifest is of tiny/1"),
    (lambda folder: None, "ended while it loaded"),
]
FIRST, KILLED = 3, 2 + len(BROKEN)


@pytest.fixture(scope="module")
def partly_broken(
    tiny_artifact: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Make, Repository]]:
    """All that may be wrong, opened at once beside tiny/1, which is sound."""
    with making(tmp_path_factory.mktemp("broken"), tiny_artifact) as make:
        for version, (spoil, _) in enumerate(BROKEN, FIRST):
            spoil(add_version(make.models, version))

        def launch(setup: Setup) -> RecordedProcess:
            if setup.folder.name != str(KILLED):
                return real(setup)
            with engines_stopped():
                process = real(setup)
            os.kill(process.pid, signal.SIGKILL)
            return process

        real, make.launch = make.launch, launch  # type: ignore[method-assign]
        yield make, make.opened()


@pytest.mark.parametrize(("index", "reason"), [*enumerate(reason for _, reason in BROKEN)])
def test_broken_version_is_named_and_left_out(
    partly_broken: tuple[Make, Repository], index: int, reason: str
) -> None:
    broken = partly_broken[1].find("tiny", FIRST + index)
    assert broken.state is ModelState.FAILED and reason in broken.reason


def test_broken_versions_keep_no_other_from_service(partly_broken: tuple[Make, Repository]) -> None:
    make, repository = partly_broken
    assert repository.find("tiny").version == 1
    assert (make.loads("success"), make.loads("failure")) == (1, len(BROKEN))
    assert make.left == 1


# ---- versions that are loaded


def test_sound_versions_are_loaded(make: Make) -> None:
    add_version(make.models, 2)
    repository = make.opened()
    assert [entry.label for entry in repository.entries] == ["tiny/1", "tiny/2"]
    assert len(repository.models()) == 2
    assert repository.find("").version == 2
    assert make.loads("success") == 2
    for version in ("1", "2"):
        labels = {"model": "tiny", "version": version}
        assert make.metrics.registry.get_sample_value("seqserve_slots", labels) == 2
    assert len(make.launched) == make.left == 2
    for model in repository.models():
        model.engine.terminate()
    assert make.left == 0


def test_versions_load_beside_each_other(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    add_version(make.models, 2)
    launched: list[int] = []

    def load(engine: RemoteEngine) -> None:
        launched.append(len(make.launched))
        real(engine)

    real = RemoteEngine.load
    monkeypatch.setattr(RemoteEngine, "load", load)
    make.opened()
    assert launched == [2, 2], "one was waited for before another began"


def test_caches_that_do_not_fit(make: Make) -> None:
    add_version(make.models, 2)
    with pytest.raises(StartupError, match="--slots"):
        make.opened(slots=1 << 50)
    assert len(make.launched) == 2 and make.left == 0


def test_provider_that_is_not_there(make: Make) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.raises(ProviderError, match=r"pip install 'seqserve\[server-gpu\]'"):
        make.opened(provider=Provider.CUDA)
    assert make.left == 0


@pytest.mark.parametrize(
    ("settings", "of_folder", "says"),
    [
        ({"default": "other"}, "", "--default-model: 'other' is not in"),
        ({}, "other", "default: 'other' is not in the repository"),
        ({"traffic": {"other": {1: 1}}}, "", "--traffic: .*'other'"),
        ({"traffic": {"tiny": {7: 1}}}, "", "--traffic: .*version 7"),
    ],
)
def test_what_is_not_there_starts_no_process(
    make: Make, settings: dict[str, Any], of_folder: str, says: str
) -> None:
    if of_folder:
        (make.models / "default").write_text(of_folder)
    with pytest.raises(OptionError, match=says):
        make().open(**settings)
    assert make.launched == []


def test_the_folder_may_name_the_default(make: Make) -> None:
    for name in ("aaa", "zzz"):
        add_version(make.models, 1, of=name, name=name)
    assert make.opened().default == ""
    (make.models / "default").write_text("zzz\n")
    assert make.opened().default == "zzz"
    assert make.opened("aaa").default == "aaa"


def test_a_model_may_have_the_name_of_that_file(make: Make) -> None:
    (make.models / "tiny").rename(make.models / "default")
    change_manifest(make.models / "default" / "1", name="default")
    assert make.opened().default == "default"


def test_a_failed_default_leaves_no_process(make: Make) -> None:
    # Its manifest has the name of another model.
    shutil.copytree(make.models / "tiny", make.models / "other")
    with pytest.raises(OptionError, match="--default-model: 'other' is not ready"):
        make.opened("other")
    assert make.launched and make.left == 0


def test_only_as_many_as_kept_are_loaded(make: Make) -> None:
    for version in (2, 3):
        add_version(make.models, version)
    (make.models / "tiny" / "3" / "encoder.onnx").unlink()
    repository = make.opened(keep=1)
    states = [entry.state for entry in repository.entries]
    # The highest is broken, so that the one before it takes its place.
    assert states == [ModelState.AVAILABLE, ModelState.READY, ModelState.FAILED]
    assert len(make.launched) == 2
