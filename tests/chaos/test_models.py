"""Models that fail or hang in a step: only their own calls end."""

import asyncio
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.resources import Resources, until_released
from tests.support.endless_model import MAX_TARGET, NAME, copy_version
from tests.support.process import ONCE, PATIENCE_S, ServerProcess, eventually, until

from seqserve import AsyncClient, CallError, Client, DeadlineExceeded, InternalError, Result
from seqserve.errors import Unavailable
from seqserve_server.text.tokenizer import Tokenizer

from .failing_models import fails, hangs, publish_failing
from .unaffected_client import CallAccounts, UnaffectedClient

SOUND, READS, WRITES, STUCK = 1, 2, 3, 4
"""Versions: an intact one, one that fails when it reads a token, one that fails after it generated
it, and one that hangs then."""
SOURCE = "Nobody waits for our scorer"
WORD = "salt"
"""A token that is generated only if it is forced."""
ROWS = 4
FAULTS = 3
STALL_S = 10.0
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET, "disable_unk": True}

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def failing(
    repository: Path, tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server with an intact version and failing ones, each with one worker of four rows."""
    folder = tmp_path_factory.mktemp("failing")
    models = folder / "models"
    copy_version(repository, models, SOUND)
    token_id, _ = tiny_tokenizer.encode(WORD)
    publish_failing(repository, models, READS, "encoder.onnx", token_id, fails)
    publish_failing(repository, models, WRITES, "decoder.onnx", token_id, fails)
    traffic = ("--traffic", f"{NAME}:{SOUND}=1", "--keep-versions", "2")
    options = ("--slots", str(ROWS), "--workers", "1", *traffic)
    with ServerProcess(models, folder, *options) as server:
        engines = server.engines()
        assert len(engines) == WRITES
        yield server
        assert server.engines() == engines, "an engine was restarted"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


@pytest.mark.parametrize("version", [READS, WRITES])
async def test_a_fault_in_a_graph_ends_only_its_own_calls(
    failing: ServerProcess, version: int
) -> None:
    others: dict[str, Any] = {"version": version, "suppress_tokens": [f"▁{WORD}"]}
    accounts = CallAccounts(failing)
    async with (
        UnaffectedClient(failing.target) as unaffected,
        AsyncClient(failing.target, retry=ONCE, timeout_s=PATIENCE_S) as client,
    ):
        sound = await client.generate(SOURCE, max_decoding_length=30, **others)
        before = await asyncio.to_thread(Resources.of, failing)
        for _ in range(FAULTS):
            beside = [
                asyncio.create_task(client.generate(SOURCE, **(ENDLESS | others)))
                for _ in range(ROWS - 1)
            ]
            await eventually(lambda: failing.rows_in_use() >= ROWS - 1)
            with pytest.raises(InternalError) as fault:
                if version == READS:
                    await client.generate(f"Nobody forgets {WORD}", version=version)
                else:
                    await client.generate(SOURCE, version=version, target_prefix=WORD)
            assert f"{fault.value.request_id}" in failing.stderr
            if version == READS:
                # It had not joined the batch yet.
                await unaffected.usual_s(5)
                assert not any(task.done() for task in beside)
                for task in beside:
                    task.cancel()
            ended = await asyncio.gather(*beside, return_exceptions=True)
            again = await client.generate(SOURCE, max_decoding_length=30, **others)
            assert again.hypotheses == sound.hypotheses
    after = until_released(failing, before)
    print(f"\n{before}; then {after}")
    shared = FAULTS * (ROWS - 1)
    well = unaffected.answered + 1 + FAULTS
    if version == READS:
        accounts.until(OK=well, INTERNAL=FAULTS, CANCELLED=shared)
    else:
        assert all(isinstance(error, InternalError) for error in ended)
        accounts.until(OK=well, INTERNAL=FAULTS + shared)


def publish_stuck(repository: Path, tokenizer: Tokenizer, models: Path) -> None:
    token_id, _ = tokenizer.encode(WORD)
    publish_failing(repository, models, STUCK, "decoder.onnx", token_id, hangs)


async def test_an_engine_that_hangs_is_restarted(
    repository: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    copy_version(repository, models, SOUND)
    publish_stuck(repository, tiny_tokenizer, models)
    options = ("--slots", str(ROWS), "--workers", "1", "--traffic", f"{NAME}:{SOUND}=1")
    options += ("--stall-timeout-s", str(STALL_S))
    with ServerProcess(models, tmp_path, *options) as server:
        engines, accounts = set(server.engines()), CallAccounts(server)
        async with (
            UnaffectedClient(server.target) as unaffected,
            AsyncClient(server.target, retry=ONCE, timeout_s=PATIENCE_S) as client,
        ):
            sound = await client.generate(SOURCE, version=STUCK, max_decoding_length=30)
            began_s = time.monotonic()
            stuck = asyncio.create_task(
                client.generate(SOURCE, version=STUCK, target_prefix=WORD, max_decoding_length=9)
            )
            with pytest.raises(DeadlineExceeded):
                await client.generate(SOURCE, version=STUCK, timeout_s=STALL_S / 5)
            assert time.monotonic() - began_s < STALL_S
            with pytest.raises(Unavailable):
                await stuck
            known_s = time.monotonic() - began_s
            await unaffected.usual_s(20)
            await eventually(lambda: is_sound(server, sound.hypotheses))
            back_s = time.monotonic() - began_s
        print(f"\nits calls failed after {known_s:.1f} s, others were served after {back_s:.1f} s")
        assert STALL_S < known_s < 3 * STALL_S
        assert f"engine has stood still and is ended model={NAME}/{STUCK}" in server.stderr
        assert len(engines & set(server.engines())) == len(engines) - 1
        ended = accounts.ended()
        assert ended["DEADLINE_EXCEEDED"] == 1 and not ended["INTERNAL"]
        server.stop()


def is_sound(server: ServerProcess, hypotheses: Any) -> bool:
    with Client(server.target, retry=ONCE) as client:
        try:
            result = client.generate(SOURCE, version=STUCK, max_decoding_length=30)
        except CallError:
            return False
    return bool(result.hypotheses == hypotheses)


@contextmanager
def stuck(
    repository: Path, tokenizer: Tokenizer, folder: Path, *options: str
) -> Iterator[tuple[ServerProcess, Future[Result]]]:
    """A server whose only engine hangs, and the call that it hangs in."""
    publish_stuck(repository, tokenizer, folder / "models")
    given = ("--slots", str(ROWS), "--workers", "1", *options)
    with (
        ServerProcess(folder / "models", folder, *given) as server,
        Client(server.target, retry=ONCE) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        call = pool.submit(client.generate, SOURCE, target_prefix=WORD, timeout_s=PATIENCE_S)
        until(lambda: server.rows_in_use() == 1)
        yield server, call


def test_an_engine_that_hangs_does_not_delay_the_end(
    repository: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    options = ("--drain-timeout-s", "1")
    with stuck(repository, tiny_tokenizer, tmp_path, *options) as (server, call):
        server.signal(signal.SIGTERM)
        with pytest.raises(CallError) as lost:
            call.result()
        assert lost.value.code == "UNAVAILABLE"
        assert server.wait() == 0
        assert server.engines() == []
    assert "all_finished=False" in server.stderr


def test_an_engine_that_hangs_does_not_outlive_a_server_that_is_killed(
    repository: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with stuck(repository, tiny_tokenizer, tmp_path) as (server, call):
        server.signal(signal.SIGKILL)
        with pytest.raises(CallError):
            call.result()
        assert server.wait() == -signal.SIGKILL
        until(lambda: not server.engines())
    assert "the thread step-0 hangs and is abandoned" in server.stderr
