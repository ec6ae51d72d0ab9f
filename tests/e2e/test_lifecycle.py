"""Start and end of a server: signals, startup errors, and what it reports about itself."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.endless_model import MAX_TARGET, NAME
from tests.support.process import ONCE, PATIENCE_S, ServerProcess, eventually, reached, until

from seqserve import AsyncClient, Client, Result
from seqserve.errors import Unavailable
from seqserve.results import StopReason

CALLS, SLOTS = 12, 4
SOURCE = "The old train waits for"
LONG: dict[str, Any] = {"min_decoding_length": 1500, "max_decoding_length": 1500}
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET}


@pytest.mark.parametrize("is_told_to_all", [False, True], ids=["the server", "its group"])
def test_no_accepted_call_is_lost(repository: Path, tmp_path: Path, is_told_to_all: bool) -> None:
    # Then none is refused because the machine is slow.
    options = ("--slots", str(SLOTS), "--workers", "2", "--max-queue-s", "60")
    options += ("--caller-share", "1", "--drain-timeout-s", "120")
    with ServerProcess(repository, tmp_path, *options) as server:
        # SIGINT is Ctrl-C in a terminal; SIGTERM stops a service.
        end = server.signal_all if is_told_to_all else server.signal
        results = asyncio.run(end_under_load(server, end))
        assert server.wait() == 0
        assert server.engines() == []
    assert len({result.hypotheses for result in results}) == 1
    assert results[0].generated_tokens == 1500
    assert "all_finished=True" in server.stderr
    assert "Traceback" not in server.stderr


async def end_under_load(
    server: ServerProcess, end: Callable[[signal.Signals], None]
) -> list[Result]:
    """Stops the server while a call runs and others wait, and calls once more."""
    async with AsyncClient(server.target, retry=ONCE, timeout_s=PATIENCE_S) as client:
        await reached(client)
        limited = asyncio.create_task(client.generate(SOURCE, time_limit_ms=1000, **ENDLESS))
        # They have all slots until they are cancelled, so that no other call ends too early.
        held = [asyncio.create_task(client.generate(SOURCE, **ENDLESS)) for _ in range(SLOTS)]
        await eventually(lambda: server.under_way() + limited.done() == 1 + SLOTS)
        calls = [asyncio.create_task(client.generate(SOURCE, **LONG)) for _ in range(CALLS)]
        await eventually(lambda: server.under_way() >= SLOTS + CALLS)
        end(signal.SIGTERM)
        await eventually(lambda: server.get("/readyz")[0] == 503)
        assert server.get("/healthz")[0] == 200
        with pytest.raises(Unavailable) as refused:
            await client.generate("Nobody")
        # Not a failed connection, but an answer with retry advice.
        assert refused.value.retry_after_s is not None
        assert not any(call.done() for call in calls)
        assert (await limited).stop_reason is StopReason.TIME_LIMIT
        for call in held:
            call.cancel()
        return await asyncio.gather(*calls)


def test_calls_beyond_the_drain_timeout_get_unavailable(repository: Path, tmp_path: Path) -> None:
    with ServerProcess(repository, tmp_path, "--drain-timeout-s", "0.2") as server:
        with Client(server.target, retry=ONCE) as client:
            pieces = client.stream(SOURCE, **ENDLESS)
            next(pieces)
            server.signal(signal.SIGTERM)
            with pytest.raises(Unavailable) as lost:
                list(pieces)
        # The status that clients see, with retry advice.
        assert lost.value.retry_after_s and lost.value.request_id
        assert server.wait() == 0
    line = f"id={lost.value.request_id} method=GenerationService.GenerateStream code=UNAVAILABLE"
    assert line in server.stderr
    assert "all_finished=False" in server.stderr


def test_second_signal_ends_at_once(repository: Path, tmp_path: Path) -> None:
    with ServerProcess(repository, tmp_path) as server, Client(server.target) as client:
        pieces = client.stream(SOURCE, **ENDLESS)
        next(pieces)
        server.signal(signal.SIGINT)
        until(lambda: "draining" in server.stderr)
        server.signal(signal.SIGINT)
        assert server.wait() == 130
        until(lambda: not server.engines())
        pieces.close()
    assert "Traceback" not in server.stderr


# ---- startup errors


def fails_to_start(repository: Path, folder: Path, *options: str) -> tuple[int, str]:
    server = ServerProcess(repository, folder, *options)
    try:
        status = server.wait()
    finally:
        server.kill()
    assert server.stdout == ""
    assert "Traceback" not in server.stderr
    return status, server.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--traffic", f"{NAME}:7=1"], "--traffic: "),
        (
            ["--default-model", "endles"],
            f"--default-model: 'endles' is not in the repository; available: {NAME}",
        ),
    ],
)
def test_invalid_option_is_named_before_models_are_loaded(
    repository: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    status, stderr = fails_to_start(repository, tmp_path, *options)
    assert status == 2
    assert message in stderr
    assert "model loaded" not in stderr


def test_idle_server_was_never_busy_and_warns_of_a_misspelt_variable(
    repository: Path, tmp_path: Path
) -> None:
    environment = {"SEQSERVE_SLOT": "4"}
    with ServerProcess(repository, tmp_path, environment=environment) as server:
        # The warm-up leaves no trace.
        for name in ("batch_rows_count", "source_tokens_total", "encode_duration_seconds_count"):
            assert server.value(name) == 0
        until(server.is_idle)
        assert server.get("/readyz")[0] == 200
        server.stop()
    warning = "warning unknown variable name=SEQSERVE_SLOT did_you_mean=SEQSERVE_SLOTS"
    assert warning in server.stderr


def test_empty_repository(tmp_path: Path) -> None:
    (tmp_path / "models" / NAME / "latest").mkdir(parents=True)
    status, stderr = fails_to_start(tmp_path / "models", tmp_path)
    assert status == 1
    assert "<name>/<version>/" in stderr
