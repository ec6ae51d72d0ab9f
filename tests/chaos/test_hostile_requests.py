"""A gateway under one caller's attacks: it stays small, and another caller hardly notices."""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.gateway import Gateway, gateway_of
from tests.support.process import MODELS, PATIENCE_S, ServerProcess

from . import gateway_attacks

SECONDS = float(os.environ.get("ATTACK_S", "10"))
"""Of each attack; a minute shows what collects over time."""
MOST_MIB = 256
"""What docker-compose.yml gives a gateway."""

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("server")
    options = ("--caller-metadata", "x-forwarded-for")
    with ServerProcess(MODELS, folder, *options) as server, gateway_of(server.target) as gateway:
        yield gateway


def memory_mib(pid: int) -> float:
    """Memory of a process and its children; what they share counts once."""
    total_kib = 0
    for each in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total_kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kib / 1024


class Watch:
    """Another caller, who translates short texts, and the probe of an orchestrator."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.text_s: list[float] = []
        self.health_s: list[float] = []
        self.statuses: set[int] = set()
        self.peak_mib = 0.0

    async def run(self, until: asyncio.Event) -> None:
        async with httpx.AsyncClient(base_url=self._gateway.url, timeout=PATIENCE_S) as client:
            await asyncio.gather(
                self._translate(client, until), self._probe(client, until), self._weigh(until)
            )

    async def _translate(self, client: httpx.AsyncClient, until: asyncio.Event) -> None:
        body = {"q": "It rains.", **gateway_attacks.PAIR}
        while not until.is_set():
            begun_s = time.perf_counter()
            self.statuses.add((await client.post("/translate", json=body)).status_code)
            self.text_s.append(time.perf_counter() - begun_s)
            await asyncio.sleep(0.02)

    async def _probe(self, client: httpx.AsyncClient, until: asyncio.Event) -> None:
        while not until.is_set():
            begun_s = time.perf_counter()
            assert (await client.get("/healthz")).status_code == 200
            self.health_s.append(time.perf_counter() - begun_s)
            await asyncio.sleep(0.02)

    async def _weigh(self, until: asyncio.Event) -> None:
        while not until.is_set():
            self.peak_mib = max(self.peak_mib, memory_mib(self._gateway.process.pid))
            await asyncio.sleep(0.1)


def p99_ms(durations_s: list[float]) -> float:
    return 1e3 * statistics.quantiles(durations_s, n=100)[-1]


async def watched(gateway: Gateway, attack: str) -> tuple[Watch, dict[str, int]]:
    watch, is_over = Watch(gateway), asyncio.Event()
    watching = asyncio.create_task(watch.run(is_over))
    outcomes: dict[str, int] = {}
    if attack:
        command = [sys.executable, gateway_attacks.__file__, attack, gateway.url, str(SECONDS)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        outcomes = json.loads(output)
    else:
        await asyncio.sleep(SECONDS)
    is_over.set()
    await watching
    return watch, outcomes


@pytest.fixture(scope="module")
def usual(gateway: Gateway) -> Watch:
    return asyncio.run(watched(gateway, ""))[0]


@pytest.mark.parametrize("attack", gateway_attacks.ATTACKS)
async def test_gateway_under_attack_stays_small_and_answers_others(
    gateway: Gateway, usual: Watch, attack: str
) -> None:
    watch, outcomes = await watched(gateway, attack)
    print(
        f"\n{attack}: {outcomes}; {watch.peak_mib:.0f} MiB; p99 of health"
        f" {p99_ms(watch.health_s):.0f} ms; of a text {p99_ms(watch.text_s):.0f} ms,"
        f" without {p99_ms(usual.text_s):.0f} ms ({len(watch.text_s)} texts)"
    )
    assert gateway.process.poll() is None
    assert watch.peak_mib < MOST_MIB
    assert watch.statuses == {200}
