"""A wall clock that jumps by hours: waits and limits use the monotonic clock."""

import asyncio
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.resources import Resources, until_released
from tests.support.endless_model import MAX_TARGET
from tests.support.process import ONCE, PATIENCE_S, ServerProcess

from seqserve import AsyncClient, DeadlineExceeded, Overloaded, Result, StopReason

from .unaffected_client import CallAccounts, UnaffectedClient

# Preloaded, it replaces the C library's clock for Python and for gRPC's core.
_JUMPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static int (*theirs)(clockid_t, struct timespec *);

__attribute__((constructor)) static void find(void) {
  theirs = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

/* Every half second: seven hours ahead, back to where it was, seven hours behind. */
int clock_gettime(clockid_t clock, struct timespec *at) {
  struct timespec since;
  if (!theirs) find();
  int result = theirs(clock, at);
  if (clock == CLOCK_REALTIME && !theirs(CLOCK_MONOTONIC, &since))
    at->tv_sec += (1 - (since.tv_sec * 2 + since.tv_nsec / 500000000) % 3) * 7 * 3600;
  return result;
}

int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  int result = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
"""

TIMES = 6
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET}

pytestmark = pytest.mark.chaos


@pytest.fixture
def jumps(tmp_path: Path) -> Path:
    """Compiles a library that makes the clock of a process jump."""
    compiler = shutil.which("cc")
    assert compiler, "this test needs a C compiler, `cc`"
    source, library = tmp_path / "jumps.c", tmp_path / "jumps.so"
    source.write_text(_JUMPS)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


async def test_wall_clock_jumps_change_nothing(
    repository: Path, tmp_path: Path, jumps: Path
) -> None:
    options = ("--slots", "4", "--workers", "1", "--max-queue", "2", "--watch-interval-s", "0.2")
    environment = {"LD_PRELOAD": str(jumps)}
    with ServerProcess(repository, tmp_path, *options, environment=environment) as server:
        accounts, left = CallAccounts(server), 0
        async with AsyncClient(server.target, retry=ONCE, timeout_s=PATIENCE_S) as client:
            async with UnaffectedClient(server.target) as unaffected:
                await unaffected.usual_s(10)
                before = await asyncio.to_thread(Resources.of, server)
                for _ in range(TIMES):
                    # Each process starts at another hour.
                    await asyncio.sleep(0.3)
                    await bounded(client)
                await unaffected.usual_s(10)
            for _ in range(TIMES):
                await asyncio.sleep(0.3)
                left += await refused(client)
        until_released(server, before)
        accounts.until(
            OK=unaffected.answered + TIMES,
            DEADLINE_EXCEEDED=TIMES,
            RESOURCE_EXHAUSTED=TIMES,
            CANCELLED=left,
        )
        hours = {line[11:13] for line in server.stderr.splitlines()}
        assert len(hours) >= 3, "the clock did not jump"
        calls = server.value("request_duration_seconds_count")
        # A jump would add or take seven hours.
        assert 0 < server.value("request_duration_seconds_sum") < PATIENCE_S * calls


async def bounded(client: AsyncClient) -> None:
    """Makes calls that must end at their deadline and at their time limit."""
    began_s = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        await client.generate("Nobody", timeout_s=1.0, **ENDLESS)
    assert 0.9 < time.monotonic() - began_s < PATIENCE_S
    cut = await client.generate("Nobody", time_limit_ms=700, **ENDLESS)
    assert cut.stop_reason is StopReason.TIME_LIMIT
    assert 700 <= cut.timings.total_ms < PATIENCE_S * 1000
    assert 0 <= cut.timings.queue_ms <= cut.timings.total_ms


async def refused(client: AsyncClient) -> int:
    """Calls until one is refused with short retry advice; returns how many were accepted."""
    calls: list[asyncio.Task[Result]] = []
    while not any(call.done() for call in calls):
        calls.append(asyncio.create_task(client.generate("Nobody", **ENDLESS)))
        await asyncio.sleep(0.1)
    error = next(call.exception() for call in calls if call.done())
    assert isinstance(error, Overloaded)
    assert error.retry_after_s is not None and 0 < error.retry_after_s <= 30
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    return len(calls) - 1
