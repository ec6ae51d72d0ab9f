"""Metrics of a real server: exactly the names and labels that dashboards use."""

import platform
import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.endless_model import NAME
from tests.support.process import ServerProcess
from tests.unit.server.front.telemetry.test_metrics import FAMILIES

from seqserve import Client
from seqserve.errors import InvalidArgument

OF_THE_SERVER = {
    "answer_bytes": ("gauge", set()),
    "answers_waiting": ("gauge", set()),
    "lost_calls": ("counter", set()),
}
"""Families that no model and no call has."""
OPTIONAL = ("numbers_differ", "gpu_", "answer_cache_", "reload_", "certificate_")
"""Beginnings of families that a server has only by an option."""


@pytest.fixture(scope="module")
def scraped(server: ServerProcess) -> str:
    """A scrape after a call that succeeded and one that failed."""
    with Client(server.target) as client:
        client.generate("Nobody", max_decoding_length=3)
        with pytest.raises(InvalidArgument):
            client.generate("")
    return server.get("/metrics")[1]


def test_names_and_labels(scraped: str) -> None:
    contract = FAMILIES | OF_THE_SERVER
    expected = {name: contract[name] for name in contract if not name.startswith(OPTIONAL)}
    found = {
        family.name.removeprefix("seqserve_"): (
            {"unknown": "untyped"}.get(family.type, family.type),
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in text_string_to_metric_families(scraped)
        if family.name.startswith("seqserve_") and family.samples
    }
    assert found == expected


def test_values_of_labels_are_bounded(server: ServerProcess, scraped: str) -> None:
    values: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scraped):
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
    assert values["model"] <= {NAME, ""}
    assert values["version"] <= {"1", ""} | {platform.python_version()}
    assert values["priority"] == {"normal", "low"}
    assert values["where"] == {"queue", "decode"}
    stops = {"eos", "length", "stop_sequence", "time_limit"}
    refusals = {"backlog", "queue_full", "queue_tokens", "queue_wait", "caller_share", "deadline"}
    assert values["reason"] <= stops | refusals | {"draining", "invalid"}
    services = ("GenerationService.", "ModelService.", "GRPCInferenceService.")
    assert all(method.startswith(services) for method in values["method"])


NO_PROMTOOL = "promtool is not installed: apt-get install prometheus"


@pytest.mark.skipif(not shutil.which("promtool"), reason=NO_PROMTOOL)
def test_promtool_finds_no_problem(scraped: str) -> None:
    command = ["promtool", "check", "metrics"]
    check = subprocess.run(command, input=scraped, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stdout + check.stderr) == (0, "")
