"""One caller floods a gateway; another one is served as before."""

import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx
import pytest
from tests.support.flood import quantile
from tests.support.gateway import Gateway, gateway_of
from tests.support.process import ServerProcess

from .http_attacker import KINDS

OTHER = "127.0.0.2"
ATTACK_S = 60.0
QUIET_S = 5.0
BODY = {"source": "It rains.", "options": {"max_decoding_length": 8}}
_PAUSE_S = 0.02
MOST_FACTOR, MOST_HEALTH_S = 10.0, 0.05
"""Of the usual durations; a busy machine has others for probes too."""

pytestmark = pytest.mark.chaos


def durations_of(gateway: Gateway, seconds: float) -> tuple[list[float], list[float]]:
    """Calls for a time from another address; returns how long calls and probes take.

    Each comes by a connection of its own.
    """
    calls: list[float] = []
    probes: list[float] = []
    none_kept = httpx.Limits(max_keepalive_connections=0)
    transport = httpx.HTTPTransport(local_address=OTHER, limits=none_kept)
    with httpx.Client(transport=transport, base_url=gateway.url, timeout=60.0) as client:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            for path, durations in (("/v1/generate", calls), ("/healthz", probes)):
                begun_s = time.perf_counter()
                body = BODY if durations is calls else None
                answer = client.request("POST" if body else "GET", path, json=body)
                durations.append(time.perf_counter() - begun_s)
                assert answer.status_code == 200, answer.text
            time.sleep(_PAUSE_S)
    return calls, probes


@pytest.mark.parametrize("kind", KINDS)
def test_flood_of_one_caller_holds_up_no_other(server: ServerProcess, kind: str) -> None:
    with gateway_of(server.target) as gateway:
        port = str(urlsplit(gateway.url).port)
        usual, usual_probes = durations_of(gateway, QUIET_S)
        command = [sys.executable, "-m", "tests.chaos.http_attacker", kind, port]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
            try:
                assert attacker.stdout is not None
                assert attacker.stdout.readline() == "all are there\n"
                calls, probes = durations_of(gateway, ATTACK_S)
                assert attacker.poll() is None
            finally:
                attacker.kill()
        shown = (quantile(each, 0.99) for each in (usual, calls, usual_probes, probes))
        print(kind, *(f"{1e3 * duration_s:.1f} ms" for duration_s in shown))
        assert quantile(calls, 0.99) <= MOST_FACTOR * quantile(usual, 0.99)
        most_s = max(MOST_HEALTH_S, MOST_FACTOR * quantile(usual_probes, 0.99))
        assert quantile(probes, 0.99) <= most_s
