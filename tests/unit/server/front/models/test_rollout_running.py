"""What a server does while it runs: it watches its folder, loads, unloads, and keeps calls whole.

Engines are in threads, and a version is as sound as its manifest says in one word.
"""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.loop import settled
from tests.unit.server.engine.fake_runtime import EOS, FakeRuntime, make_manifest
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.engine_client.thread_host import ThreadHost
from tests.unit.server.front.service import until

from seqserve_server.artifact.repository import Listing
from seqserve_server.contract import errors
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.group import LaunchedGroup
from seqserve_server.front.models import folders
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.models.loader import Loader
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.text.tokenizer import Tokenizer

LIMITS = EngineLimits(workers=1, slots=2, max_queue=4, max_source_tokens_per_step=20)
AVAILABLE, LOADING, READY, RESTARTING, DRAINING, FAILED = ModelState


class RecordedHost(ThreadHost):
    has_ended = False

    def __init__(self, runtime: FakeRuntime, version: int) -> None:
        self.runtime = runtime
        self.version = version
        super().__init__(runtime, LIMITS)

    def end(self) -> None:
        super().end()
        self.has_ended = True


class FakeLoader:
    """Stands where a loader would be, and loads what a word says: ``sound`` or anything else."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.hosts: list[RecordedHost] = []
        self.launches = 0
        self.loads: list[int] = []
        self.may_load, self.may_launch = threading.Event(), threading.Event()
        self.may_load.set()
        self.may_launch.set()

    def begin(self, name: str, version: int) -> LaunchedGroup:
        return LaunchedGroup([partial(self._launch, version)], label=f"{name}/{version}")

    def _launch(self, version: int) -> RecordedHost:
        self.launches += 1
        assert self.may_launch.wait(PATIENCE_S)
        self.hosts.append(RecordedHost(FakeRuntime(), version))
        return self.hosts[-1]

    def break_down(self, version: int) -> None:
        """Ends the engine of a version abruptly."""
        [*_, last] = [host for host in self.hosts if host.version == version]
        last.break_down()

    def load(self, name: str, version: int, engine: LaunchedGroup) -> ServedModel:
        self.loads.append(version)
        assert self.may_load.wait(PATIENCE_S)
        folder = self.repository / name / str(version)
        try:
            word = (folder / "manifest.json").read_text(encoding="utf-8")
            if word != "sound":
                raise errors.ArtifactError(f"{folder}: is {word}")
            engine.load()
        except BaseException:
            engine.terminate()
            raise
        return ServedModel(
            manifest=make_manifest(name=name, version=version),
            tokenizer=cast(Tokenizer, None),
            engine=engine,
            provider=Provider.CPU,
        )


class Watched:
    """A rollout that looks when it is told to."""

    def __init__(self, models: Path, loader: Any = None, **settings: Any) -> None:
        self.models = models
        self.loader = loader or FakeLoader(models)
        self.metrics = Metrics()
        self.rollout = Rollout(Repository(), cast(Loader, self.loader), self.metrics, **settings)
        self.repository = self.rollout.repository

    def write(self, version: int, word: str = "sound", name: str = "m") -> Path:
        folder = self.models / name / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text(word, encoding="utf-8")
        return folder

    async def loading(self, version: int) -> asyncio.Task[Entry]:
        """Asks for a version that is written now; its load waits for ``may_load``."""
        self.write(version)
        self.loader.may_load.clear()
        load = asyncio.create_task(self.rollout.load("m", version))
        await until(lambda: self.states().get(version) is LOADING)
        return load

    async def draining(self, version: int) -> tuple[ServedModel, asyncio.Task[Entry]]:
        """Unloads a version that has a call."""
        model = self.model(version)
        model.calls.enter()
        unload = asyncio.create_task(self.rollout.unload("m", version))
        await until(lambda: self.states()[version] is DRAINING)
        return model, unload

    async def scan(self, times: int = 2) -> None:
        for _ in range(times):
            await self.rollout.scan()

    def states(self) -> dict[int, ModelState]:
        return {entry.version: entry.state for entry in self.repository.entries}

    async def until(self, **states: ModelState) -> None:
        """Waits until versions, ``v1`` and so on, are in these states and there are no others."""
        wanted = {int(name[1:]): state for name, state in states.items()}
        await until(lambda: self.states() == wanted)

    def entry(self, version: int) -> Entry:
        return self.repository.find("m", version)

    def model(self, version: int) -> ServedModel:
        model = self.repository.choose("m", version, "key").model
        assert model is not None
        return model

    def called(self, version: int = 0) -> int:
        return self.repository.choose("m", version, "key").version


@asynccontextmanager
async def watching(
    models: Path, *versions: int, traffic: dict[str, dict[int, int]] | None = None, **settings: Any
) -> AsyncIterator[Watched]:
    """Begins with these versions, all sound, and leaves nothing behind."""
    watched = Watched(models, **settings)
    for version in versions:
        watched.write(version)
    await asyncio.to_thread(watched.rollout.open, traffic=traffic)
    await watched.rollout.start()
    try:
        yield watched
    finally:
        watched.loader.may_load.set()
        watched.loader.may_launch.set()
        await watched.rollout.stop()
        for host in watched.loader.hosts:
            assert host.has_ended, "an engine was left behind"


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    async with watching(tmp_path, 1) as watched:
        yield watched


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Watched]:
    """Of versions 1 and 2."""
    async with watching(tmp_path, 1, 2) as watched:
        yield watched


async def test_copy_under_way_is_not_loaded(watched: Watched) -> None:
    folder = watched.models / "m" / "2"
    folder.mkdir()
    for size in range(3):
        (folder / "weights.bin").write_bytes(bytes(size))
        await watched.scan(1)
    await watched.scan(2)
    assert watched.states() == {1: READY, 2: AVAILABLE}
    assert "manifest.json" in watched.entry(2).reason
    watched.write(2)
    for size in range(4, 7):
        (folder / "weights.bin").write_bytes(bytes(size))
        await watched.scan(1)
    assert watched.loader.loads == [1]
    await watched.scan(1)
    await watched.until(v1=READY, v2=READY)


async def test_older_version_drains_only_when_its_calls_have_ended(tmp_path: Path) -> None:
    async with watching(tmp_path, 1, keep=1) as watched:
        model = watched.model(1)
        for _ in range(2):
            model.calls.enter()
        watched.write(2)
        await watched.scan(2)
        await watched.until(v1=DRAINING, v2=READY)
        assert watched.called() == 2
        with pytest.raises(errors.ModelUnavailable, match="m/1 is being unloaded"):
            watched.called(1)
        # Whoever has it may still submit: a batch does so bit by bit.
        model.calls.leave()
        await settled()
        assert watched.states()[1] is DRAINING and model.engine.status.is_up
        model.calls.leave()
        await watched.until(v1=AVAILABLE, v2=READY)
        assert not model.engine.status.is_up
        assert watched.loader.hosts[0].has_ended
        with pytest.raises(errors.ModelNotLoaded, match="m/1 is not loaded"):
            watched.called(1)


async def test_calls_that_never_end_hold_a_version_only_so_long(tmp_path: Path) -> None:
    async with watching(tmp_path, 1, 2, keep=0, drain_timeout_s=0.02) as watched:
        watched.model(1).calls.enter()
        entry = await watched.rollout.unload("m", 1)
        assert entry.state is AVAILABLE
        assert watched.loader.hosts[1].has_ended


async def test_vanished_version_drains_and_is_forgotten(both: Watched) -> None:
    shutil.rmtree(both.models / "m" / "2")
    await both.scan(1)
    assert both.states() == {1: READY, 2: READY}
    await both.scan(1)
    await both.until(v1=READY)
    assert both.called() == 1
    with pytest.raises(errors.ModelNotFound, match="available: m/1"):
        both.called(2)


async def test_version_whose_folder_vanishes_once_it_is_read(watched: Watched) -> None:
    watched.write(2)
    await watched.scan(2)
    shutil.rmtree(watched.models / "m" / "2")
    await watched.scan(2)
    await watched.until(v1=READY)


async def test_older_version_comes_back_before_the_vanished_one_leaves(tmp_path: Path) -> None:
    async with watching(tmp_path, 1, 2, keep=1) as watched:
        assert watched.states() == {1: AVAILABLE, 2: READY}
        watched.loader.may_load.clear()
        shutil.rmtree(tmp_path / "m" / "2")
        await watched.scan(2)
        assert watched.states() == {1: LOADING, 2: READY}
        assert watched.called() == 2
        watched.loader.may_load.set()
        await watched.until(v1=READY)


async def test_load_and_unload_win_over_the_watch_and_the_number_to_keep(tmp_path: Path) -> None:
    async with watching(tmp_path, 1, 2, keep=1) as watched:
        assert watched.states() == {1: AVAILABLE, 2: READY}
        assert (await watched.rollout.load("m", 1)).state is READY
        await watched.scan(2)
        assert watched.states() == {1: READY, 2: READY}
        assert (await watched.rollout.unload("", 2)).state is AVAILABLE
        await watched.scan(3)
        assert watched.states() == {1: READY, 2: AVAILABLE}
        assert (await watched.rollout.load("m", 2)).state is READY
        assert watched.called() == 2


async def test_load_finds_what_no_look_has_seen(watched: Watched) -> None:
    watched.write(7)
    assert (await watched.rollout.load("", 0)).version == 7
    assert watched.called() == 7
    assert await watched.rollout.load("m", 7) is watched.entry(7)
    assert watched.loader.loads == [1, 7]


async def test_look_that_was_under_way_does_not_undo_a_load(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_listed, may_return = threading.Event(), threading.Event()
    real = folders.list_folders

    def listed_before(repository: Path) -> Listing:
        found = real(repository)
        if not has_listed.is_set():
            has_listed.set()
            assert may_return.wait(PATIENCE_S)
        return found

    monkeypatch.setattr(folders, "list_folders", listed_before)
    scan = asyncio.create_task(watched.rollout.scan())
    assert await asyncio.to_thread(has_listed.wait, PATIENCE_S)
    load = await watched.loading(2)
    may_return.set()
    await scan
    watched.loader.may_load.set()
    assert (await load).state is READY
    await watched.scan(2)
    assert watched.states() == {1: READY, 2: READY}


async def test_engine_that_cannot_be_listened_to_is_ended(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(engine: LaunchedGroup) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(LaunchedGroup, "start", start)
    watched.write(2)
    with pytest.raises(errors.ModelNotLoaded, match="Too many open files"):
        await watched.rollout.load("m", 2)
    assert watched.loader.hosts[1].has_ended
    assert watched.called() == 1


async def test_load_of_a_broken_version_says_why(watched: Watched) -> None:
    watched.write(2, "torn")
    for _ in range(2):
        # Asked for by hand, it is tried again.
        with pytest.raises(errors.ModelNotLoaded, match="m/2 could not be loaded: m/2: is torn"):
            await watched.rollout.load("m", 2)
    assert watched.loader.loads == [1, 2, 2]
    assert (await watched.rollout.unload("m", 2)).state is AVAILABLE


@pytest.mark.parametrize(
    ("name", "version"), [("m", 9), ("x", 1), ("../m", 1), ("m/1", 1), (".", 1), ("m", 1 << 31)]
)
async def test_load_of_what_is_not_there(tmp_path: Path, name: str, version: int) -> None:
    async with watching(tmp_path / "models", 1) as watched:
        for change in (watched.rollout.load, watched.rollout.unload):
            with pytest.raises(errors.ModelNotFound, match="available: m/1"):
                await change(name, version)


async def test_load_of_one_that_drains_is_to_be_tried_again(both: Watched) -> None:
    model, unload = await both.draining(2)
    with pytest.raises(errors.ModelUnavailable, match="is being unloaded"):
        await both.rollout.load("m", 2)
    model.calls.leave()
    await unload
    await both.rollout.load("m", 2)


async def test_what_was_cancelled_last_is_counted(both: Watched) -> None:
    stepping, may_step = threading.Event(), threading.Event()

    def step() -> None:
        stepping.set()
        assert may_step.wait(PATIENCE_S)

    for host in both.loader.hosts:
        host.runtime.before_step = step
    model = both.model(2)
    model.calls.enter()
    options = DecodingOptions(max_decoding_length=10, min_decoding_length=10)
    spec = GenerateSpec(source=[5, EOS], options=options)
    request_id = model.engine.submit(spec, lambda event, timeline: None)
    assert await asyncio.to_thread(stepping.wait, PATIENCE_S)
    unload = asyncio.create_task(both.rollout.unload("m", 2))
    await both.until(v1=READY, v2=DRAINING)
    # The call is over, but its row leaves only when the step is.
    model.engine.cancel(request_id)
    model.calls.leave()
    await asyncio.sleep(0.05)
    may_step.set()
    await unload
    read = both.metrics.registry.get_sample_value
    labels = {"model": "m", "version": "2"}
    assert await asyncio.to_thread(read, "seqserve_cancelled_total", labels) == 1


async def test_series_of_an_unloaded_version_end_after_its_last_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqserve_server.front.telemetry.metrics._LAST_SCRAPE_S", 0.0)
    async with watching(tmp_path, 1, 2) as watched:

        def shown() -> set[str]:
            return {
                sample.labels["version"]
                for family in watched.metrics.registry.collect()
                for sample in family.samples
                if sample.name == "seqserve_stop_total"
            }

        assert await asyncio.to_thread(shown) == {"1", "2"}
        await watched.rollout.unload("m", 2)
        async with asyncio.timeout(PATIENCE_S):
            while await asyncio.to_thread(shown) != {"1"}:
                await asyncio.sleep(0.002)
        await watched.rollout.load("m", 2)
        assert await asyncio.to_thread(shown) == {"1", "2"}


async def test_unload_while_it_loads(watched: Watched) -> None:
    load = await watched.loading(2)
    unload = asyncio.create_task(watched.rollout.unload("m", 2))
    await asyncio.sleep(0)
    watched.loader.may_load.set()
    assert (await unload).state is AVAILABLE
    with pytest.raises(errors.ModelNotLoaded, match="unloaded meanwhile"):
        await load


async def test_caller_that_leaves_does_not_stop_the_load(watched: Watched) -> None:
    load = await watched.loading(2)
    load.cancel()
    watched.loader.may_load.set()
    await watched.until(v1=READY, v2=READY)


async def test_version_with_a_share_is_kept(tmp_path: Path) -> None:
    async with watching(tmp_path, 1, 2, traffic={"m": {1: 1}}, keep=1) as watched:
        assert watched.states() == {1: READY, 2: READY}
        assert watched.called() == 1
        await watched.rollout.set_traffic("m", {})
        await watched.until(v1=AVAILABLE, v2=READY)
        await watched.rollout.set_traffic("m", {1: 1, 2: 1})
        await watched.until(v1=READY, v2=READY)
        # A version that vanishes takes its share with it.
        shutil.rmtree(tmp_path / "m" / "1")
        await watched.scan(2)
        await watched.until(v2=READY)
        assert watched.called() == 2


async def test_stop_while_something_loads(watched: Watched) -> None:
    watched.loader.may_load.clear()
    watched.write(2)
    await watched.scan(2)
    await until(lambda: 2 in watched.loader.loads)
    stop = asyncio.create_task(watched.rollout.stop())
    await asyncio.sleep(0.01)
    watched.loader.may_load.set()
    await asyncio.wait_for(stop, PATIENCE_S)
    assert watched.states()[2] is FAILED


async def test_server_that_drains_changes_nothing_any_more(tmp_path: Path) -> None:
    async with watching(tmp_path, 1, 2, keep=1) as watched:
        states = watched.states()
        watched.rollout.close()
        rollout = watched.rollout
        for change in (
            rollout.load("m", 1),
            rollout.unload("m", 2),
            rollout.set_traffic("m", {1: 1}),
        ):
            with pytest.raises(errors.Draining):
                await change
        assert watched.states() == states
        assert watched.repository.weighted("m") == []
        assert watched.loader.loads == [2]


async def test_server_that_drains_while_something_loads(watched: Watched) -> None:
    load = await watched.loading(2)
    watched.rollout.close()
    watched.loader.may_load.set()
    with pytest.raises(errors.Draining):
        await load


async def test_stop_does_not_wait_for_what_drains(tmp_path: Path) -> None:
    async with watching(tmp_path, 1, drain_timeout_s=3600) as watched:
        _, unload = await watched.draining(1)
        await asyncio.wait_for(watched.rollout.stop(), PATIENCE_S)
        await unload


async def test_calls_go_to_the_next_version_while_an_engine_restarts(tmp_path: Path) -> None:
    async with watching(tmp_path, 1, 2, traffic={"m": {1: 1, 2: 9}}) as watched:
        changes: list[ModelState] = []
        watched.rollout.on_change = lambda: changes.append(watched.entry(2).state)
        watched.loader.may_launch.clear()
        watched.loader.break_down(2)
        await watched.until(v1=READY, v2=RESTARTING)
        assert watched.called() == 1
        assert watched.repository.share(watched.entry(1)) == 1.0
        assert watched.entry(2).reason == "its engine has failed and is started again"
        with pytest.raises(errors.ModelUnavailable, match="m/2 is restarting"):
            await watched.rollout.load("m", 2)
        watched.loader.may_launch.set()
        await watched.until(v1=READY, v2=READY)
        assert changes == [RESTARTING, READY]
        assert watched.repository.share(watched.entry(2)) == 0.9


async def test_version_that_restarts_can_be_unloaded(both: Watched) -> None:
    both.loader.may_launch.clear()
    both.loader.break_down(2)
    await both.until(v1=READY, v2=RESTARTING)
    await until(lambda: both.loader.launches == 3)
    await both.rollout.unload("m", 2)
    assert both.states() == {1: READY, 2: AVAILABLE}
    # The start that was under way ends too.
    both.loader.may_launch.set()
    await until(lambda: len(both.loader.hosts) == 3 and both.loader.hosts[-1].has_ended)
