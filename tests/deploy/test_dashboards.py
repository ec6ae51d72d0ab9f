"""The dashboards: Prometheus, which watches servers under load, has an answer to each query."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from tests.certificates import Certificates
from tests.support.gateway import gateway_of
from tests.support.process import MODELS, ServerProcess, until

from seqserve import Client, RetryPolicy
from seqserve.errors import DeadlineExceeded, InvalidArgument, Overloaded

from .helm import NAMESPACE, RELEASE, one, render
from .panels import panels
from .prometheus import RULES, Prometheus
from .releases import OPEN, SLOTS

pytestmark = pytest.mark.helm

POD = {"namespace": NAMESPACE, "pod": f"{RELEASE}-6f7c9d8b5d-x2k4z"}
SOURCE = "The coffee tastes good."


QUERIES = {
    f"{panel.board}: {panel.title}: {legend}": query
    for panel in panels()
    for legend, query in panel.queries.items()
}
RULE_LIST: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a version of it that cannot be loaded."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(MODELS / "en-de" / "4", folder / "en-de" / "4")
    shutil.copytree(MODELS / "en-de" / "4", folder / "en-de" / "5")
    with (folder / "en-de" / "5" / "encoder.onnx").open("ab") as damaged:
        damaged.write(b"x")
    return folder


@pytest.fixture(scope="module")
def watched(
    repository: Path, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Watches a server and a gateway to which happens what dashboards show."""
    options = [*certificates.options(mutual=True), "--cache-mb", "8", "--slots", "8"]
    options += ["--workers", "1", "--max-queue", "4", "--caller-share", "1"]
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("server")
        server = stack.enter_context(ServerProcess(repository, folder, *options))
        target = f"localhost:{server.target.rpartition(':')[2]}"
        tls = certificates.tls()
        names = ("--tls-ca", "--tls-client-certificate", "--tls-client-key")
        paths = map(str, (certificates.ca, *certificates.client))
        flags = [word for pair in zip(names, paths, strict=True) for word in pair]
        gateway = stack.enter_context(gateway_of(target, *flags))
        jobs = {"seqserve": server.metrics_url, "gateway": gateway.url}
        addresses = {job: url.removeprefix("http://") for job, url in jobs.items()}
        prometheus = stack.enter_context(
            Prometheus(addresses, POD, tmp_path_factory.mktemp("prometheus"))
        )
        client = stack.enter_context(Client(target, tls=tls, retry=RetryPolicy(max_attempts=1)))
        door = stack.enter_context(gateway.client())
        for job in jobs:
            until(lambda job=job: bool(prometheus.query(f'up{{job="{job}"}} == 1')))
        # A rate needs two values, and what has not happened yet may have none: so all happens
        # twice. What an engine did since the last scrape goes with it.
        for happens in (happen, restart, happen):
            happens(server, client, door)
            see(prometheus)
        yield prometheus


def see(prometheus: Prometheus) -> None:
    def scrapes() -> float:
        [found] = prometheus.query('count_over_time(up{job="seqserve"}[10m])')
        return float(found["value"][1])

    before = scrapes()
    until(lambda: scrapes() >= before + 2)


def happen(server: ServerProcess, client: Client, door: httpx.Client) -> None:
    """Sends calls that are answered, kept, refused, late and cancelled."""
    for source in (SOURCE, SOURCE, "We saw a good film."):
        client.generate(source)
        door.post("/v1/generate", json={"source": source})
        door.post("/translate", json={"q": source, "source": "en", "target": "de"})
    # Samples are never kept, so the engine itself answers.
    client.generate(SOURCE, temperature=0.5)
    list(client.stream(SOURCE, temperature=0.5))
    list(client.stream(SOURCE))
    client.score(SOURCE, "Der Kaffee schmeckt gut.")
    long = {"min_decoding_length": 128, "max_decoding_length": 128}
    with suppress(InvalidArgument):
        client.generate("")
    with suppress(DeadlineExceeded, Overloaded):
        client.generate(SOURCE, timeout_s=0.01, **long)
    with closing(client.stream(SOURCE, **long)) as pieces:
        next(pieces)
    # More than slots and queue have room for.
    with suppress(Overloaded):
        list(client.generate_many(map("{} {}".format, [SOURCE] * 40, range(40)), **long))


def restart(server: ServerProcess, client: Client, door: httpx.Client) -> None:
    os.kill(server.engines()[0], signal.SIGKILL)
    until(lambda: server.value("engine_restarts_total") == 1)
    until(lambda: server.get("/readyz")[0] == 200)


@pytest.mark.parametrize("name", QUERIES)
def test_every_line_has_values(name: str, watched: Prometheus) -> None:
    found = watched.query(QUERIES[name])
    assert found, QUERIES[name]
    # A histogram without a value has no quantile.
    assert any(series["value"][1] != "NaN" for series in found), QUERIES[name]


@pytest.mark.parametrize("rule", [rule["record"] for rule in RULE_LIST if "record" in rule])
def test_every_recorded_series_has_values(rule: str, watched: Prometheus) -> None:
    assert watched.query(rule)


def test_every_rule_is_evaluated(watched: Prometheus) -> None:
    rules = [rule for group in watched.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(RULE_LIST)
    assert {rule["health"] for rule in rules} == {"ok"}


def test_what_keda_asks_for_has_an_answer(watched: Prometheus) -> None:
    triggers = one(render({**OPEN, **SLOTS}), "ScaledObject")["spec"]["triggers"]
    queries = [trigger["metadata"]["query"] for trigger in triggers]
    assert len(queries) == 2
    for query in queries:
        [series] = watched.query(query)
        assert float(series["value"][1]) >= 0
        other = query.replace(f"{RELEASE}-[", f"{RELEASE}-gateway-[")
        assert watched.query(other) == []


def test_statuses_that_count_as_failures_are_those_of_the_rules() -> None:
    [codes] = {
        part.partition('"')[0]
        for query in QUERIES.values()
        for part in query.split('code=~"')[1:]
        if not part.startswith("OK|")
    }
    assert f'{{code=~"{codes}"}}' in RULES.read_text("utf-8")
