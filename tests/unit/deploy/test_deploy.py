import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tests.unit.deploy.test_pages import metric_names

from seqserve.arguments import MAX_MESSAGE_BYTES
from seqserve.option_values import variable_of
from seqserve.options import parse
from seqserve_gateway.command import GatewayOptions
from seqserve_server.front.config import ServeOptions

Manifest = dict[str, Any]

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
DOCKERFILE = (ROOT / "server" / "Dockerfile").read_text()
DEPLOY_GUIDE = (ROOT / "docs" / "deploy.md").read_text()
KUBERNETES = (ROOT / "deploy" / "kustomize" / "seqserve.yaml").read_text()
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE_TLS = ROOT / "deploy" / "compose" / "tls.yml"
# Variables of the compose file alone.
COMPOSE_OWN = {"SEQSERVE_IMAGE", "SEQSERVE_EXTRA", "SEQSERVE_MEMORY"}
DEFAULTS = ServeOptions()
# Time after the drain for the last bytes and the end of the process.
LEAST_MARGIN_S = 10


COMPOSE: Manifest = yaml.safe_load(COMPOSE_TEXT)["services"]
GUARDED: Manifest = yaml.safe_load(COMPOSE_TLS.read_text())["services"]
BASE: Manifest = {part["kind"]: part for part in yaml.safe_load_all(KUBERNETES)}
"""The manifests that the chart gives for Kubernetes, by kind."""
DEPLOYMENT: Manifest = BASE["Deployment"]["spec"]["template"]["spec"]
SCRAPES = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
RULES: list[Manifest] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}


@pytest.mark.parametrize("text", [DOCKERFILE, COMPOSE_TEXT, KUBERNETES])
def test_every_variable_that_is_named_exists(text: str) -> None:
    options = {variable_of(field.name) for field in dataclasses.fields(ServeOptions)}
    named = set(re.findall(r"SEQSERVE_[A-Z_]+", text))
    assert named
    assert named <= options | COMPOSE_OWN


@pytest.mark.parametrize("services", [COMPOSE, GUARDED], ids=["alone", "with tls"])
def test_compose_hands_only_options_to_its_services(services: Manifest) -> None:
    for service, options in (("server", ServeOptions), ("gateway", GatewayOptions)):
        known = {variable_of(field.name) for field in dataclasses.fields(options)}
        assert set(services[service].get("environment", ())) <= known


def test_what_the_guide_tells_to_set_passes_through_compose() -> None:
    rows = re.findall(r"^\| (`SEQSERVE_.+?) \|", DEPLOY_GUIDE, re.MULTILINE)
    listed = {variable for row in rows for variable in re.findall(r"SEQSERVE_[A-Z_]+", row)}
    passed = COMPOSE["server"]["environment"]
    assert listed - set(passed) == {"SEQSERVE_DRAIN_TIMEOUT_S"}
    assert all(value.startswith(f"${{{name}:-") for name, value in passed.items())


@pytest.mark.parametrize("service", ["server", "gateway", "prometheus", "grafana"])
def test_containers_have_no_rights_they_do_not_need(service: str) -> None:
    settings = COMPOSE[service]
    assert settings["read_only"] is True
    assert settings["cap_drop"] == ["ALL"]
    assert settings["security_opt"] == ["no-new-privileges:true"]
    assert settings["mem_limit"]
    assert not {"privileged", "cap_add", "network_mode", "pid"} & set(settings)


def test_compose_publishes_on_loopback_only() -> None:
    published = [port for service in COMPOSE.values() for port in service["ports"]]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_ports_are_the_defaults_of_the_server() -> None:
    ports = [str(DEFAULTS.port), str(DEFAULTS.metrics_port)]
    assert f"EXPOSE {' '.join(ports)}\n" in DOCKERFILE
    assert [port.rpartition(":")[2] for port in COMPOSE["server"]["ports"]] == ports
    [scraped] = SCRAPES[0]["dns_sd_configs"]
    assert (scraped["port"], scraped["names"]) == (DEFAULTS.metrics_port, ["server"])


def test_what_listens_to_all_says_that_it_means_it() -> None:
    assert "SEQSERVE_HOST=0.0.0.0" in DOCKERFILE
    assert "SEQSERVE_INSECURE=true" in DOCKERFILE
    insecure = COMPOSE["server"]["environment"]["SEQSERVE_INSECURE"]
    assert insecure == "${SEQSERVE_INSECURE:-true}"
    assert BASE["ConfigMap"]["data"]["SEQSERVE_INSECURE"] == "true"
    assert GUARDED["server"]["environment"]["SEQSERVE_INSECURE"] == "false"


def test_all_listen_at_one_address_which_a_value_changes() -> None:
    variables, command = COMPOSE["server"]["environment"], COMPOSE["gateway"]["command"]
    assert variables["SEQSERVE_HOST"] == command[2] == "${SEQSERVE_HOST:-0.0.0.0}"
    assert variables["SEQSERVE_METRICS_HOST"] == "${SEQSERVE_METRICS_HOST:-0.0.0.0}"
    assert BASE["ConfigMap"]["data"]["SEQSERVE_HOST"] == "0.0.0.0"
    values = yaml.safe_load((ROOT / "deploy/helm/seqserve/values.yaml").read_text())
    assert values["host"] == "0.0.0.0"


def test_no_variables_of_a_service_called_seqserve_reach_the_server() -> None:
    spec = yaml.safe_load((ROOT / "deploy/kserve/service.yaml").read_text())["spec"]
    assert spec["predictor"]["enableServiceLinks"] is DEPLOYMENT["enableServiceLinks"] is False


def test_examples_take_answers_as_large_as_the_client_does() -> None:
    examples = ROOT / "clients" / "examples"
    for file in (examples / "node" / "service.js", examples / "go" / "main.go"):
        assert f"{MAX_MESSAGE_BYTES >> 20} << 20" in file.read_text()
    assert f"-max-msg-sz {MAX_MESSAGE_BYTES}`" in (examples / "grpcurl.md").read_text()


def test_compose_mounts_models_where_the_image_looks() -> None:
    assert "SEQSERVE_MODEL_REPOSITORY=/models" in DOCKERFILE
    assert COMPOSE["server"]["volumes"] == ["${SEQSERVE_MODEL_REPOSITORY:-./models}:/models:ro"]


def test_gateway_of_compose_starts_in_front_of_the_server() -> None:
    gateway = COMPOSE["gateway"]
    name, *arguments = gateway["command"]
    arguments = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", argument) for argument in arguments]
    options = parse(GatewayOptions, arguments, prog=name, description="", environ={})
    port = str(options.port)
    assert options.target == f"server:{DEFAULTS.port}"
    assert options.insecure and options.host == "0.0.0.0"
    assert [published.rpartition(":")[2] for published in gateway["ports"]] == [port]
    assert f":{port}/readyz" in gateway["healthcheck"]["test"][-1]
    extra = COMPOSE["server"]["build"]["args"]["EXTRA"].removesuffix("}").rpartition(":-")[2]
    assert "gateway" in extra.split(",")
    assert SCRAPES[1]["dns_sd_configs"][0]["port"] == options.port


def test_there_is_time_to_drain() -> None:
    least_s = DEFAULTS.drain_timeout_s + LEAST_MARGIN_S
    assert GatewayOptions().drain_timeout_s <= DEFAULTS.drain_timeout_s
    for service in ("server", "gateway"):
        assert float(COMPOSE[service]["stop_grace_period"].removesuffix("s")) >= least_s
    assert DEPLOYMENT["terminationGracePeriodSeconds"] >= least_s


def test_kubernetes_probes_what_the_server_offers() -> None:
    [server] = DEPLOYMENT["containers"]
    for probe in ("startupProbe", "readinessProbe"):
        # Kubernetes' gRPC probes do not support TLS.
        assert server[probe]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert server["livenessProbe"]["httpGet"]["path"] == "/healthz"
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports == {"grpc": DEFAULTS.port, "metrics": DEFAULTS.metrics_port}
    assert DEPLOYMENT["securityContext"]["runAsNonRoot"] is True
    # The server counts the cores of its limit itself.
    assert server["resources"]["limits"]["cpu"] == server["resources"]["requests"]["cpu"]


def test_the_image_runs_as_nobody_without_a_frontend_to_fetch() -> None:
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", DOCKERFILE, re.MULTILINE)
    assert "# syntax=" not in DOCKERFILE
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"python:3.13-slim-trixie"}


def test_what_the_image_copies_is_in_the_build_context() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = {source for line in copies for source in line.split()}
    assert "*" in lines
    assert copied == allowed
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_rules_name_metrics_that_server_and_gateway_have() -> None:
    used = set()
    for rule in RULES:
        # Names of recording rules contain a colon and do not match.
        names = re.findall(r"(?<![:\w])seqserve_\w+(?![:\w])", _without_labels(rule["expr"]))
        used |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    assert used
    assert used <= metric_names()
    referred = {name for rule in RULES for name in re.findall(r"\w+:\w+:\w+", rule["expr"])}
    assert referred <= RECORDED


def test_the_guide_lists_every_alert_and_metrics_that_exist() -> None:
    alerts = {rule["alert"] for rule in ALERTS}
    assert alerts == set(re.findall(r"^\| `(Seqserve\w+)` \|", DEPLOY_GUIDE, re.MULTILINE))
    assert set(re.findall(r"`(\w+:\w+:\w+)`", DEPLOY_GUIDE)) <= RECORDED


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_panel_says_what_to_read_from_it_and_asks_the_chosen_source(file: Path) -> None:
    board = json.loads(file.read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert board["uid"] == file.stem and board["description"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["title"] and panel["description"] and panel["targets"]
        assert panel["datasource"]["uid"] == "${datasource}"


def test_every_alert_says_what_to_do_and_is_tried() -> None:
    tests = yaml.safe_load((PROMETHEUS / "rules_test.yml").read_text())["tests"]
    tried = {
        case["alertname"]
        for test in tests
        for case in test.get("alert_rule_test", [])
        if case["exp_alerts"]
    }
    assert {rule["alert"] for rule in ALERTS} == tried
    assert all(rule["annotations"]["action"] for rule in ALERTS)


@pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed: apt-get install prometheus"
)
@pytest.mark.parametrize(
    "arguments",
    [["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]],
    ids=["config", "rules"],
)
def test_promtool_agrees(arguments: list[str]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("docker-compose"), reason="docker-compose is not installed")
@pytest.mark.parametrize("more", [[], [COMPOSE_TLS]], ids=["alone", "with tls"])
def test_compose_understands_the_file(more: list[Path]) -> None:
    files = [f"--file={file}" for file in (ROOT / "docker-compose.yml", *more)]
    command = ["docker-compose", *files, "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_probe_of_the_image_exists() -> None:
    [command] = re.findall(r"^ +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert json.loads(command) == ["python", "-m", "seqserve_server.front.healthcheck"]
    assert (ROOT / "server" / "seqserve_server" / "front" / "healthcheck.py").exists()


def _without_labels(expression: str) -> str:
    return re.sub(r"\{[^}]*\}", "", expression)
