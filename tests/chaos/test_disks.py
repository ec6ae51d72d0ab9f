"""Full disks: a log that cannot be written delays no call, an incomplete copy is not served."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.test_rollout import until_state
from tests.support.endless_model import NAME, copy_version
from tests.support.process import ONCE, ServerProcess, until
from tests.support.sockets import port_held

from seqserve import AsyncClient, Client, ModelState

from .unaffected_client import CallAccounts, UnaffectedClient

CALLS = 600
"""Calls, and so log lines: more than a pipe holds."""
WATCH = ("--watch-interval-s", "0.1", "--slots", "8", "--keep-versions", "1")

pytestmark = pytest.mark.chaos


@contextmanager
def on_a_full_disk(file: Path) -> Iterator[Callable[[], None]]:
    file.symlink_to("/dev/full")
    yield lambda: None


@contextmanager
def to_a_reader_who_leaves(file: Path) -> Iterator[Callable[[], None]]:
    os.mkfifo(file)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    yield lambda: os.close(reader)


@contextmanager
def to_a_reader_who_sleeps(file: Path) -> Iterator[Callable[[], None]]:
    os.mkfifo(file)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    yield lambda: None
    os.close(reader)


@pytest.mark.parametrize(
    "writing", [on_a_full_disk, to_a_reader_who_leaves, to_a_reader_who_sleeps]
)
def test_blocked_output_delays_no_call(
    repository: Path, tmp_path: Path, writing: Callable[[Path], Iterator[Callable[[], None]]]
) -> None:
    with (
        port_held() as port,
        port_held() as metrics_port,
        writing(tmp_path / "stderr") as begin,
        writing(tmp_path / "stdout") as begin_too,
    ):
        options = ("--port", str(port), "--metrics-port", str(metrics_port), "--slots", "8")
        server = ServerProcess(repository, tmp_path, *options)
        server.target = f"127.0.0.1:{port}"
        server.metrics_url = f"http://127.0.0.1:{metrics_port}"
        try:
            until(lambda: is_ready(server))
            accounts = CallAccounts(server)
            begin()
            begin_too()
            asyncio.run(called(server, CALLS))
            accounts.until(OK=CALLS)
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        finally:
            server.kill()


def is_ready(server: ServerProcess) -> bool:
    """Asks ``/readyz``, since the ready line cannot be read."""
    try:
        return server.get("/readyz")[0] == 200
    except urllib.error.URLError:
        return False


async def called(server: ServerProcess, calls: int) -> None:
    async with AsyncClient(server.target, retry=ONCE) as client:
        sources = itertools.repeat("Nobody", calls)
        answers = client.generate_many(sources, concurrency=8, max_decoding_length=1)
        assert len([answer async for answer in answers]) == calls


@pytest.fixture
def watching(repository: Path, tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """A server that scans often, and its repository with version 1."""
    models = tmp_path / "models"
    copy_version(repository, models, 1)
    with ServerProcess(models, tmp_path, *WATCH) as server:
        yield server, models


async def test_an_incomplete_copy_replaces_nothing(
    repository: Path, watching: tuple[ServerProcess, Path]
) -> None:
    server, models = watching
    whole = copy_version(repository, models.parent / "whole", 2)
    async with UnaffectedClient(server.target) as unaffected:
        await unaffected.usual_s(5)
        place = models / NAME / "2"
        place.mkdir()
        # The worst order: the manifest is there from the beginning.
        shutil.copy(whole / "manifest.json", place)
        cut = (whole / "weights.bin").stat().st_size // 2
        for file in sorted(whole.iterdir()):
            assert copied(file, place, cut) == (file.stat().st_size <= cut)
        failed = await asyncio.to_thread(until_state, server, 2, ModelState.FAILED)
        assert "weights.bin: sha256" in failed.state_reason
        assert (await asyncio.to_thread(served, server)) == 1
        await unaffected.usual_s(5)
        # The disk has room again, and the copy is completed.
        assert copied(whole / "weights.bin", place, 1 << 30)
        await asyncio.to_thread(until_state, server, 2, ModelState.READY)
        await asyncio.to_thread(until_state, server, 1, ModelState.AVAILABLE)
        assert (await asyncio.to_thread(served, server)) == 2
        await unaffected.usual_s(5)
    assert server.value("model_loads_total", result="failure") == 1
    assert "Traceback" not in server.stderr


def copied(file: Path, folder: Path, most_bytes: int) -> bool:
    """Copies a file to a disk with limited room; returns whether the copy is complete."""
    command = 'ulimit -f "$1" && exec cp "$2" "$3"'
    # POSIX counts in blocks of 512 bytes.
    blocks = str(-(-most_bytes // 512))
    arguments = ["sh", "-c", command, "sh", blocks, str(file), str(folder)]
    return subprocess.run(arguments, stderr=subprocess.DEVNULL).returncode == 0


def served(server: ServerProcess) -> int:
    with Client(server.target, retry=ONCE) as client:
        return client.generate("Nobody", max_decoding_length=3).version
