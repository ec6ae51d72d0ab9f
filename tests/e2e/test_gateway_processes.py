"""`seqserve gateway --processes 2`: whichever process answers, and whichever is killed."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.support.endless_model import MAX_TARGET
from tests.support.gateway import Gateway, gateway_of
from tests.support.process import PATIENCE_S, ServerProcess, until

PAIR = {"source": "en", "target": "de"}
FILE = {"file": ("a.txt", b"The coffee tastes good.\n")}
TRANSLATED = "Der Kaffee schmeckt gut.\n"
ENDLESS = {"min_decoding_length": MAX_TARGET}
LIMITED = ENDLESS | {"time_limit_ms": 3000}
EACH, MANY = 3, 30


class Family(Gateway):
    """A gateway of two processes."""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def children(self) -> list[int]:
        pid = self.process.pid
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def folder(self) -> Path:
        words = Path(f"/proc/{self.children()[0]}/cmdline").read_text().split("\0")
        return Path(words[words.index("seqserve_gateway.command") + 2])

    def sockets(self) -> list[list[str]]:
        """Lists the sockets of the port, with the fields of Linux, proc_pid_net(5), "tcp"."""
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [fields for fields in lines if fields[1].endswith(f":{self.port:04X}")]

    def serving(self) -> int:
        """Counts the processes that listen."""
        return sum(fields[3] == "0A" for fields in self.sockets())

    def callers_of(self, child: int) -> set[int]:
        """Returns the ports of the connections that a child has accepted."""
        own = set()
        for file in Path(f"/proc/{child}/fd").iterdir():
            with suppress(FileNotFoundError):
                own.add(os.readlink(file))
        return {
            int(fields[2].partition(":")[2], 16)
            for fields in self.sockets()
            if f"socket:[{fields[9]}]" in own
        }


@pytest.fixture
def caller() -> Iterator[httpx.Client]:
    """Connects anew for each call, so that either process may answer."""
    anew = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(limits=anew, timeout=PATIENCE_S, trust_env=False, verify=False) as client:
        yield client


@contextmanager
def family_of(target: str) -> Iterator[Family]:
    """Starts one, and checks that it ends well and leaves nothing."""
    with gateway_of(target, "--processes", "2") as gateway:
        family = Family(gateway.process, gateway.url)
        folder = family.folder()
        yield family
        children = family.children()
        assert len(children) == 2
    assert not any(Path(f"/proc/{each}").exists() for each in children)
    assert not folder.exists()


@pytest.fixture(scope="module")
def gateway(shipped: ServerProcess) -> Iterator[Family]:
    with family_of(shipped.target) as gateway:
        yield gateway


def calls_of(metrics: str, path: str) -> float:
    name = f'seqserve_http_requests_total{{code="OK",form="libretranslate",path="{path}"}} '
    return sum(float(line.removeprefix(name)) for line in metrics.splitlines() if name in line)


def test_a_file_is_fetched_whichever_process_answers(gateway: Family, caller: httpx.Client) -> None:
    answer = caller.post(f"{gateway.url}/translate_file", data=PAIR, files=FILE)
    url = answer.json()["translatedFileUrl"]
    for _ in range(MANY):
        assert caller.get(url).text == TRANSLATED
        assert caller.get(f"{gateway.url}/readyz").status_code == 200
    metrics = caller.get(f"{gateway.url}/metrics").text
    assert calls_of(metrics, "/download_file/{key}/{name}") == MANY
    # It outlives the process that has made it.
    for child in gateway.children():
        os.kill(child, signal.SIGKILL)
        until(lambda child=child: child not in gateway.children() and gateway.serving() == 2)
    assert caller.get(url).status_code == 200


def test_a_document_is_told_of_and_given_once_whichever_process_answers(
    gateway: Family, caller: httpx.Client
) -> None:
    pair = {"source_lang": "EN", "target_lang": "DE"}
    for _ in range(EACH):
        handle = caller.post(f"{gateway.url}/v2/document", data=pair, files=FILE).json()
        url = f"{gateway.url}/v2/document/{handle.pop('document_id')}"

        def status(url: str = url, handle: dict[str, str] = handle) -> str:
            return str(caller.post(url, json=handle).json()["status"])

        until(lambda status=status: status() == "done")
        assert {status() for _ in range(MANY)} == {"done"}
        assert caller.post(f"{url}/result", json=handle).text == TRANSLATED
        again = {caller.post(f"{url}/result", json=handle).status_code for _ in range(MANY)}
        assert again == {404}


def test_only_calls_of_a_killed_process_fail(server: ServerProcess, caller: httpx.Client) -> None:
    with family_of(server.target) as gateway, ThreadPoolExecutor(MANY) as pool:
        victim, other = gateway.children()
        connections: dict[int, http.client.HTTPConnection] = {}

        def callers() -> list[set[int]]:
            return [gateway.callers_of(child) & {*connections} for child in (victim, other)]

        while min(map(len, callers())) < EACH:
            connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE_S)
            connection.connect()
            connections[connection.sock.getsockname()[1]] = connection
            until(lambda: sum(map(len, callers())) == len(connections))

        def status(port: int, options: dict[str, int]) -> int:
            connection = connections[port]
            # Equal requests would have one answer.
            body = {"source": f"a {port}", "model": "endless", "options": options}
            headers = {"Content-Type": "application/json"}
            try:
                connection.request("POST", "/v1/generate", json.dumps(body), headers)
                return connection.getresponse().status
            except OSError:
                return 0
            finally:
                connection.close()

        lost, kept = callers()
        answers = {port: pool.submit(status, port, ENDLESS) for port in lost}
        until(lambda: server.under_way() == len(lost))
        answers |= {port: pool.submit(status, port, LIMITED) for port in kept}
        over = [answers[port].done for port in kept]
        until(lambda: server.under_way() + sum(is_over() for is_over in over) == len(connections))
        os.kill(victim, signal.SIGKILL)
        # Signals are the parent's.
        os.kill(other, signal.SIGTERM)
        assert {port for port, each in answers.items() if each.result(PATIENCE_S) == 0} == lost
        assert {answers[port].result() for port in kept} == {200}
        for _ in range(MANY):
            assert caller.get(f"{gateway.url}/v1/models").status_code == 200
        until(lambda: gateway.serving() == 2)
        until(server.is_idle)
        assert other in gateway.children()
