"""Versions that calls load: one load for all that wait, room made by what no call uses.

Engines are in threads, as in the tests of a rollout.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from tests.unit.server.engine.fake_runtime import make_manifest
from tests.unit.server.front.echo import PATIENCE_S
from tests.unit.server.front.generate.asking import FEATURES, pair
from tests.unit.server.front.models.test_rollout_running import (
    FAILED,
    LIMITS,
    LOADING,
    READY,
    FakeLoader,
    Watched,
)
from tests.unit.server.front.service import until

from seqserve.v1 import generation_pb2 as pb
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract import errors
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.engine_client.group import LaunchedGroup
from seqserve_server.front.generate import route
from seqserve_server.front.models import on_demand
from seqserve_server.front.models.lifecycle import Entry
from seqserve_server.front.models.loaded_model import ServedModel

SIZE = 100


class SizedLoader(FakeLoader):
    def __init__(self, repository: Path, caller_share: float) -> None:
        super().__init__(repository)
        self.limits = replace(LIMITS, caller_share=caller_share)

    def manifest(self, name: str, version: int) -> Manifest:
        word = (self.repository / name / str(version) / "manifest.json").read_text()
        if word == "no manifest":
            raise errors.ArtifactError(f"{name}/{version}: not JSON")
        source, mark, target = name.partition("-")
        template = pair(source, target) if mark else None
        return make_manifest(name=name, version=version, template=template)

    def load(self, name: str, version: int, engine: LaunchedGroup) -> ServedModel:
        loaded = super().load(name, version, engine)
        return replace(loaded, manifest=self.manifest(name, version))

    def num_bytes(self, manifest: Manifest) -> int:
        return 3_000_000 if manifest.name == "huge" else SIZE


class Lazy(Watched):
    """Models ``a``, ``b`` and so on, each of which takes 100 bytes."""

    def __init__(self, models: Path, caller_share: float = 1.0, **settings: Any) -> None:
        super().__init__(models, SizedLoader(models, caller_share), **settings)

    def write_model(self, name: str, version: int = 1, word: str = "sound") -> None:
        self.write(version, word, name)

    def call(self, client_id: str = "ann") -> ServerCall:
        return ServerCall(path="/s/m", request_id="key", peer=client_id)

    async def ask(self, name: str, version: int = 0) -> str:
        """Gives the label of the version that a call is given, which ends at once."""
        call = self.call()
        model = await route.find_model(name, version, self.repository, call)
        call.release_models()
        return model.manifest.label

    async def ask_for_pair(self, source: str, target: str) -> list[str]:
        """Gives the labels of the versions for a pair of languages."""
        options = pb.GenerationOptions(source_language=source, target_language=target)
        directory = route.Directory(self.repository, cast(Any, None), FEATURES)
        call = self.call()
        models, *_ = await route._models(pb.GenerateRequest(options=options), directory, call)
        call.release_models()
        return [model.manifest.label for model in models]

    @property
    def entries(self) -> list[Entry]:
        return self.repository.entries

    @property
    def loaded(self) -> set[str]:
        return {entry.label for entry in self.repository.entries if entry.state is READY}

    async def metric(self, name: str, **labels: str) -> float | None:
        # In a thread, because engines answer a scrape in the loop.
        read = self.metrics.registry.get_sample_value
        return await asyncio.to_thread(read, f"seqserve_{name}", labels)


@asynccontextmanager
async def lazy(
    models: Path, *names: str, room: int = 2, words: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[Lazy]:
    """A server of models that calls load, with room for two of them."""
    server = Lazy(models, max_loaded_bytes=room * SIZE, **settings)
    for name in names:
        server.write_model(name, word=(words or {}).get(name, "sound"))
    await asyncio.to_thread(server.rollout.open)
    await server.rollout.start()
    try:
        yield server
    finally:
        server.loader.may_load.set()
        await server.rollout.stop()
        assert all(host.has_ended for host in server.loader.hosts), "an engine was left behind"


async def test_a_call_loads_its_version_and_others_wait_for_it(tmp_path: Path) -> None:
    async with lazy(tmp_path, "a", "b") as server:
        assert server.loader.launches == 0 and server.loaded == set()
        assert all(entry.is_ready for entry in server.entries)
        assert await server.metric("model_state", model="a", version="1", state="on_call") == 1
        server.loader.may_load.clear()
        calls = [asyncio.create_task(server.ask("a")) for _ in range(5)]
        await until(lambda: server.repository.find("a").state is LOADING)
        # A call that leaves, as its deadline passes, ends no load.
        calls.pop().cancel()
        server.loader.may_load.set()
        assert await asyncio.gather(*calls) == ["a/1"] * 4
        assert server.loader.loads == [1] and server.loaded == {"a/1"}
        assert await server.metric("loaded_bytes") == SIZE
        assert await server.metric("model_load_seconds_count") == 1


async def test_what_no_call_has_used_for_longest_makes_room(tmp_path: Path) -> None:
    async with lazy(tmp_path, "a", "b", "c") as server:
        for name in ("a", "b", "a", "c"):
            assert await server.ask(name) == f"{name}/1"
        assert server.loaded == {"a/1", "c/1"}
        assert await server.ask("b") == "b/1"
        assert server.loaded == {"b/1", "c/1"}
        assert await server.metric("model_evictions_total") == 2
        assert await server.metric("loaded_bytes") == 2 * SIZE


async def test_the_loaded_model_of_a_pivot_makes_no_room_for_the_other_one(tmp_path: Path) -> None:
    async with lazy(tmp_path, "ko-en", "en-de", "en-fr") as server:
        await server.ask("ko-en")
        await server.ask("en-fr")
        assert await server.ask_for_pair("ko", "de") == ["ko-en/1", "en-de/1"]
        assert await server.metric("model_evictions_total") == 1


async def test_a_version_that_failed_keeps_its_languages(tmp_path: Path) -> None:
    async with lazy(tmp_path, "ko-en", "en-de", words={"en-de": "torn"}) as server:
        for _ in range(2):
            with pytest.raises(errors.ModelNotLoaded, match="en-de/1 could not be loaded"):
                await server.ask_for_pair("ko", "de")


async def test_a_version_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with lazy(tmp_path, "a", "b", "c") as server:
        calls = {name: server.call() for name in ("a", "b")}
        for name, call in calls.items():
            await route.find_model(name, 0, server.repository, call)
        third = asyncio.create_task(server.ask("c"))
        await asyncio.sleep(3 * on_demand._POLL_S)
        assert server.loaded == {"a/1", "b/1"} and not third.done()
        calls["b"].release_models()
        assert await third == "c/1"
        assert server.loaded == {"a/1", "c/1"}
        # Two of them do not fit beside the one that is in use, however long a call waits.
        monkeypatch.setattr(on_demand, "_ROOM_S", 0.05)
        await route.find_model("c", 0, server.repository, calls["b"])
        with pytest.raises(
            errors.ModelUnavailable, match="b/1 is not loaded, and calls or an admin"
        ):
            await server.ask("b")
        for call in calls.values():
            call.release_models()
        assert await server.ask("b") == "b/1"


async def test_whatever_callers_do_memory_is_bounded_and_versions_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand, "PAUSE_S", 0.01)
    async with lazy(tmp_path, *"abcdef", room=3, words={"f": "torn"}) as server:

        async def work(index: int) -> None:
            random = Random(index)
            for _ in range(12):
                call = server.call(f"client {index}")
                # Some leave while they wait, as their deadline passes, and some need two models.
                names = random.sample("abcdef", k=random.choice([1, 1, 2]))
                patience_s = random.choice([0.01, None])
                with suppress(TimeoutError, errors.ModelNotLoaded):
                    async with asyncio.timeout(patience_s):
                        for name in names:
                            await route.find_model(name, 0, server.repository, call)
                for _ in range(random.randrange(3)):
                    await asyncio.sleep(0.002)
                    assert all(model.engine.status.is_up for model in call.models)
                    assert sum(entry.model is not None for entry in server.entries) <= 3
                if patience_s is None:
                    sound = "".join(names).partition("f")[0]
                    assert [model.manifest.name for model in call.models] == list(sound)
                call.release_models()

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*map(work, range(3)))
        assert all(entry.model is None or entry.model.calls.are_idle for entry in server.entries)


async def test_a_failure_is_told_and_tried_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[Callable[[], None]] = []
    loop = asyncio.get_running_loop()
    real = loop.call_later

    def call_later(delay_s: float, callback: Callable[..., None], *arguments: Any) -> Any:
        if delay_s == on_demand.PAUSE_S:
            pauses.append(partial(callback, *arguments))
        return real(1000.0 if delay_s == on_demand.PAUSE_S else delay_s, callback, *arguments)

    monkeypatch.setattr(loop, "call_later", call_later)
    async with lazy(tmp_path, "a", "b", words={"a": "torn"}) as server:
        calls = await asyncio.gather(*(server.ask("a") for _ in range(3)), return_exceptions=True)
        assert [str(each) for each in calls] == ["a/1 could not be loaded: a/1: is torn"] * 3
        assert server.loader.loads == [1]
        assert not server.repository.find("a").is_ready
        with pytest.raises(errors.ModelNotLoaded, match="is torn"):
            await server.ask("a")
        assert server.loader.loads == [1], "the pause is not over"
        server.write_model("a")
        for end in pauses:
            end()
        assert server.repository.find("a").is_ready
        assert await server.ask("a") == "a/1"


async def test_an_older_version_serves_where_the_newest_cannot_be_loaded(tmp_path: Path) -> None:
    async with lazy(tmp_path, "a", keep=1) as server:
        assert await server.ask("a") == "a/1"
        server.write_model("a", 2, "torn")
        await server.scan()
        assert await server.ask("a") == "a/1"
        with pytest.raises(errors.ModelNotLoaded, match="a/2: is torn"):
            await server.ask("a", 2)
        server.write_model("a", 3)
        await server.scan()
        assert await server.ask("a") == "a/3"
        await until(lambda: server.loaded == {"a/3"})
        shutil.rmtree(tmp_path / "a" / "3")
        await server.scan(3)
        assert await server.ask("a") == "a/1"


async def test_a_version_without_a_manifest_has_failed_before_any_call(tmp_path: Path) -> None:
    async with lazy(tmp_path, "a", "b", words={"a": "no manifest"}) as server:
        assert server.repository.find("a").state is FAILED
        assert server.repository.find("a").reason == "a/1: not JSON"
        server.write_model("a", 1, "sound, and longer")
        await server.scan()
        assert server.repository.find("a").is_ready


async def test_one_that_never_fits_has_failed_before_any_call(tmp_path: Path) -> None:
    async with lazy(tmp_path, "a", "huge") as server:
        reason = "takes 3 MB, and --max-loaded-mb is 0"
        assert server.repository.find("huge").reason == reason
        for asks in (server.ask, server.rollout.load):
            with pytest.raises(errors.ModelNotLoaded, match=reason):
                await asks("huge")
        assert server.loader.launches == 0


async def test_an_administrator_keeps_a_version_loaded_or_unloaded(tmp_path: Path) -> None:
    async with lazy(tmp_path, "a", "b", "c") as server:
        await server.rollout.load("a")
        for name in ("b", "c", "b"):
            await server.ask(name)
        assert server.loaded == {"a/1", "b/1"}
        await server.rollout.unload("b", 1)
        with pytest.raises(errors.ModelNotLoaded, match="b/1 is not loaded; LoadModel"):
            await server.ask("b")
        assert await server.ask("c") == "c/1"
        await server.rollout.load("b")
        assert server.loaded == {"a/1", "b/1"}


async def test_one_client_cannot_take_all_places_to_wait(tmp_path: Path) -> None:
    async with lazy(tmp_path, "a", caller_share=0.5) as server:
        server.loader.may_load.clear()
        calls = [asyncio.create_task(server.ask("a")) for _ in range(3)]
        await until(lambda: server.repository.find("a").state is LOADING)
        with pytest.raises(errors.QueueFull, match="3 calls wait for models that are loading"):
            await server.ask("a")
        other = server.call("bob")
        waiting = asyncio.create_task(route.find_model("a", 0, server.repository, other))
        server.loader.may_load.set()
        assert await asyncio.gather(*calls) == ["a/1"] * 3
        assert (await waiting).manifest.name == "a"
        other.release_models()


async def test_the_end_of_a_server_ends_the_calls_that_wait(tmp_path: Path) -> None:
    async with lazy(tmp_path, "a", "b", room=1) as server:
        holder = server.call()
        await route.find_model("a", 0, server.repository, holder)
        waiting = asyncio.create_task(server.ask("b"))
        await asyncio.sleep(2 * on_demand._POLL_S)
        server.rollout.close()
        with pytest.raises(errors.Draining):
            await waiting
        holder.release_models()
