"""A server of several fronts: its callers see one server."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.endless_model import NAME, copy_version
from tests.support.process import ONCE, PATIENCE_S, ServerProcess, eventually, until
from tests.support.sockets import connections_to

from seqserve import AsyncClient, Client
from seqserve.auth import digest_of
from seqserve.errors import NotFound, Overloaded, Unavailable
from seqserve.model import ModelState

FRONTS = 3
# The system spreads so many over all fronts, but for one case in 10,000.
CONNECTIONS = 24
MESSAGE_BYTES = 1 << 20
SOURCE = "The old train waits for"
LENGTH = 40


@pytest.fixture(scope="module")
def several(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of three fronts with ``endless/1``, whose folder tests may change."""
    folder = tmp_path_factory.mktemp("fronts")
    copy_version(repository, folder / "models", 1)
    options = ("--slots", "16", "--workers", "1", "--keep-versions", "2")
    fronts = ("--front-processes", str(FRONTS))
    with ServerProcess(folder / "models", folder, *options, *fronts) as server:
        yield server
        server.stop()
        assert server.fronts() == []


async def ask_all(
    server: ServerProcess, *, version: int = 0, token: str | None = None
) -> list[str]:
    """Asks over many connections, at the same time."""
    options = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH}
    async with AsyncExitStack() as stack:
        clients = [
            # Clients with equal options share a connection.
            AsyncClient(
                server.target,
                timeout_s=PATIENCE_S,
                max_message_bytes=MESSAGE_BYTES + n,
                token=token,
            )
            for n in range(CONNECTIONS)
        ]
        for client in clients:
            await stack.enter_async_context(client)
        calls = (client.generate(SOURCE, version=version, **options) for client in clients)
        return [result.text for result in await asyncio.gather(*calls)]


def test_every_front_gives_the_answer_of_one(several: ServerProcess, server: ServerProcess) -> None:
    answers = set(asyncio.run(ask_all(several)))
    assert answers == set(asyncio.run(ask_all(server)))
    assert len(answers) == 1
    busy = [several.value("front_cpu_seconds_total", front=str(n)) for n in range(FRONTS)]
    assert len(several.fronts()) == FRONTS and all(busy)


def test_metrics_are_sums_over_the_fronts(several: ServerProcess) -> None:
    before = several.value("requests_total", code="OK", model=NAME)
    asyncio.run(ask_all(several))
    assert several.value("requests_total", code="OK", model=NAME) == before + CONNECTIONS
    until(several.is_idle)


def test_a_killed_front_takes_only_its_own_calls(several: ServerProcess) -> None:
    async def run() -> None:
        pids = several.fronts()
        # What a scrape has counted stays when the front is killed.
        counted = several.value("requests_total", code="OK", model=NAME)
        calls = asyncio.create_task(ask_all(several))
        await eventually(lambda: several.under_way() > 0 or calls.done())
        os.kill(pids[0], signal.SIGKILL)
        # Calls of the front that was killed are repeated by their clients.
        assert len(set(await calls)) == 1
        assert set(pids[1:]) <= set(several.fronts())
        await eventually(lambda: "front has started again" in several.stderr)
        assert several.value("front_restarts_total") == 1
        assert several.value("requests_total", code="OK", model=NAME) >= counted

    asyncio.run(run())
    assert len(set(asyncio.run(ask_all(several)))) == 1
    until(several.is_idle)


def test_a_front_that_stands_still_is_replaced(repository: Path, tmp_path: Path) -> None:
    options = ("--front-processes", "2", "--stall-timeout-s", "3")
    with ServerProcess(repository, tmp_path, *options) as server:
        [stopped, _] = server.fronts()
        os.kill(stopped, signal.SIGSTOP)
        until(lambda: "front has stood still and is ended" in server.stderr)
        until(lambda: "front has started again" in server.stderr)
        assert stopped not in server.fronts()
        assert len(set(asyncio.run(ask_all(server)))) == 1


def test_a_killed_engine_serves_all_fronts_again(several: ServerProcess) -> None:
    [engine] = several.engines()
    os.kill(engine, signal.SIGKILL)
    until(lambda: "engine has started again" in several.stderr)
    assert len(set(asyncio.run(ask_all(several)))) == 1


def test_versions_change_for_all_fronts_at_once(several: ServerProcess) -> None:
    copy_version(several.repository, several.repository, 2)
    with Client(several.target) as client:
        assert client.load_model(NAME, 2).state is ModelState.READY
        # Whichever front answers, it has the version.
        assert len(set(asyncio.run(ask_all(several, version=2)))) == 1
        client.set_traffic(NAME, {1: 1, 2: 1})
        assert {model.traffic_share for model in client.models()} == {0.5}
        client.unload_model(NAME, 1)
        with pytest.raises(NotFound):
            client.load_model(NAME, 3)

    async def all_refuse() -> None:
        with pytest.raises(Exception, match="not loaded"):
            await ask_all(several, version=1)

    asyncio.run(all_refuse())
    assert len(set(asyncio.run(ask_all(several)))) == 1


async def test_calls_of_one_client_outlive_a_front(several: ServerProcess) -> None:
    target = several.target
    # Enough calls at once for five connections.
    sources, concurrency = [f"line number {number}" for number in range(400)], 160

    async def translate(client: AsyncClient, after_some: Callable[[], None]) -> list[str]:
        texts = []
        options = {"concurrency": concurrency, "max_decoding_length": 20}
        async for result in client.generate_many(sources, **options):
            texts.append(result.text)
            if len(texts) == concurrency // 2:
                after_some()
        return texts

    async with AsyncClient(target, timeout_s=PATIENCE_S) as client:
        expected = await translate(client, lambda: None)
        # A front that is slow to answer at first delays the next connection.
        async with asyncio.timeout(PATIENCE_S):
            while connections_to(target) < 4:
                assert await translate(client, lambda: None) == expected
        killed = several.fronts()[0]
        assert await translate(client, lambda: os.kill(killed, signal.SIGKILL)) == expected
        assert await translate(client, lambda: None) == expected
    # gRPC closes a socket with the last object of a call on it.
    await eventually(lambda: gc.collect() >= 0 and not connections_to(target))


def test_what_a_caller_uses_is_counted_over_all_fronts_and_kept(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(
        f"{digest_of('key').hex()} generate shop requests/day={CONNECTIONS}\n"
    )
    options = ("--tokens", str(tmp_path / "tokens"), "--usage", str(tmp_path / "usage"))
    options = (*options, "--front-processes", str(FRONTS))
    for is_first in (True, False):
        (folder := tmp_path / str(is_first)).mkdir()
        with ServerProcess(repository, folder, *options) as server:
            if is_first:
                asyncio.run(ask_all(server, token="key"))
                assert server.value("caller_requests_total", caller="shop") == CONNECTIONS
            with Client(server.target, token="key") as client:
                # Each front knows it within two seconds.
                until(lambda client=client: client.usage()[0].requests == CONNECTIONS)
                with pytest.raises(Overloaded, match="quota of 24 requests a day") as refused:
                    client.generate(SOURCE)
                assert (refused.value.retry_after_s or 0) > 0
            server.stop()


def test_no_process_outlives_a_server_that_is_killed(repository: Path, tmp_path: Path) -> None:
    options = ("--front-processes", "2")
    with ServerProcess(repository, tmp_path, *options) as server:
        with Client(server.target, retry=ONCE) as client:
            pieces = client.stream(SOURCE, min_decoding_length=LENGTH)
            next(pieces)
            server.signal(signal.SIGKILL)
            with pytest.raises(Unavailable):
                list(pieces)
        until(lambda: not server.fronts() and not server.engines())
        assert "Traceback" not in server.stderr
