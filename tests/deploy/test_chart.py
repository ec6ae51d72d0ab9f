"""The chart: its manifests fit the schemas of their kinds, and a real server runs as they say."""

import dataclasses
import json
import re
import tarfile
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tests.certificates import Certificates
from tests.support.gateway import gateway_of
from tests.support.process import MODELS, ServerProcess, until

from seqserve import Client
from seqserve.auth import Scope, TokenEntry, digest_of, new_token
from seqserve.errors import Unauthenticated
from seqserve.option_values import variable_of
from seqserve.options import parse
from seqserve_gateway.command import GatewayOptions
from seqserve_server.front.config import ServeOptions

from .helm import (
    CHART,
    NAMESPACE,
    RELEASE,
    ROOT,
    Manifest,
    Refused,
    faults,
    manifests_of,
    one,
    render,
    run,
)
from .releases import EVERYTHING, IMAGE, INGRESS, LINES, MUTUAL, OPEN, RELEASES, SLOTS, TLS

pytestmark = pytest.mark.helm

GATEWAY = f"{RELEASE}-gateway"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
KSERVE = ROOT / "deploy" / "kserve"
releases = pytest.mark.parametrize("name", RELEASES)


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[Manifest]]:
    return {name: render(values) for name, values in RELEASES.items()}


@pytest.fixture(scope="module")
def misspelt() -> list[Manifest]:
    """Manifests with a field that their kinds do not have."""
    fields = {"Deployment": "replica", "ScaledObject": "trigger", "PodMonitor": "selectors"}
    manifests = [each for each in render(EVERYTHING) if each["kind"] in fields]
    for manifest in manifests:
        manifest["spec"][fields[manifest["kind"]]] = 1
    return manifests


@pytest.fixture(scope="module")
def faults_of(
    rendered: dict[str, list[Manifest]], misspelt: list[Manifest]
) -> dict[str, str | None]:
    """What the schemas say against each manifest, by its text."""
    every = (*rendered.values(), misspelt)
    texts = {json.dumps(each): each for manifests in every for each in manifests}
    return dict(zip(texts, faults(list(texts.values())), strict=True))


@releases
def test_manifests_fit_their_schemas(
    name: str, rendered: dict[str, list[Manifest]], faults_of: dict[str, str | None]
) -> None:
    assert [fault for each in rendered[name] if (fault := faults_of[json.dumps(each)])] == []


def test_schemas_find_a_misspelt_field(
    misspelt: list[Manifest], faults_of: dict[str, str | None]
) -> None:
    assert misspelt
    assert all(faults_of[json.dumps(each)] for each in misspelt)


def test_lint_has_nothing_against_it() -> None:
    values = json.dumps(EVERYTHING)
    shown = run("helm", "lint", "--strict", str(CHART), "--values", "-", text=values)
    assert "1 chart(s) linted, 0 chart(s) failed" in shown


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**OPEN, "replica": 3}, "additional properties 'replica' not allowed"),
        ({**OPEN, "tls": {"secrets": "x"}}, "'/tls': additional properties 'secrets' not allowed"),
        ({**OPEN, "options": {"SEQSERVE_SLOT": 1}}, "'SEQSERVE_SLOT' not allowed"),
        ({**OPEN, "options": {"SEQSERVE_SLOTS": "many"}}, "'/options/SEQSERVE_SLOTS'"),
        ({**OPEN, "options": {"SEQSERVE_SLOTS": 0}}, "'/options/SEQSERVE_SLOTS'"),
        ({**OPEN, "options": {"SEQSERVE_LOG_FORMAT": "xml"}}, "'/options/SEQSERVE_LOG_FORMAT'"),
        ({**OPEN, "options": {"SEQSERVE_INSECURE": False}}, "'SEQSERVE_INSECURE' not allowed"),
        ({**OPEN, "autoscaling": {"by": "memory"}}, "'/autoscaling/by'"),
        ({**OPEN, "networkPolicy": {"clients": []}}, "'/networkPolicy/clients'"),
        ({"insecure": True}, "image.repository: name the image"),
        (IMAGE, "tls.secret, and tokens or tls.clientCa"),
        ({**IMAGE, "tls": {"secret": "x"}}, "tls.secret, and tokens or tls.clientCa"),
        ({**TLS, "insecure": True}, "insecure: TLS and what shows who calls are there"),
        ({**OPEN, "tokens": {"secret": "x"}}, "tls.secret: without it"),
        ({**OPEN, "tls": {"clientCa": True}}, "tls.secret: without it"),
        ({**TLS, "tokens": {"secret": "x", "lines": LINES}}, "give secret or lines"),
        ({**OPEN, "models": {"claim": "x", "init": {"image": "y"}}}, "give claim or init"),
        ({**OPEN, "autoscaling": {"by": "slots"}}, "autoscaling.prometheus"),
        ({**OPEN, "autoscaling": {"minReplicas": 9}}, "more than maxReplicas"),
        ({**OPEN, "options": {"SEQSERVE_OTLP_ENDPOINT": "http://x:4317"}}, "networkPolicy.egress"),
        ({**MUTUAL, "gateway": {"enabled": True}}, "gateway.clientSecret"),
        ({**TLS, "gateway": {"enabled": True, "token": {"lend": True}}}, "gateway.token.secret"),
        ({**TLS, "gateway": {"ingress": INGRESS}}, "needs gateway.enabled"),
        ({**TLS, "gateway": {"enabled": True, "ingress": {"enabled": True}}}, "gateway.ingress.ho"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=re.escape(message)):
        render(values)


@releases
def test_the_server_takes_its_variables(name: str, rendered: dict[str, list[Manifest]]) -> None:
    variables = one(rendered[name], "ConfigMap")["data"]
    assert set(variables) <= {variable_of(field.name) for field in dataclasses.fields(ServeOptions)}
    spec = one(rendered[name], "Deployment")["spec"]["template"]["spec"]
    [server] = spec["containers"]
    assert server["args"] == ["serve"]
    options = parse(ServeOptions, [], prog="serve", description="", environ=variables)
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports == {"grpc": options.port, "metrics": options.metrics_port}
    pause_s = server["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] >= pause_s + options.drain_timeout_s + 10
    mounts = [Path(mount["mountPath"]) for mount in server.get("volumeMounts", ())]
    files = (options.tls_certificate, options.tls_key, options.tls_client_ca, options.tokens)
    assert all(file.parent in mounts for file in files if file is not None)
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    assert {mount["name"] for mount in server.get("volumeMounts", ())} == volumes


def test_a_caller_stays_with_the_gateway_that_holds_its_file() -> None:
    manifests = render({**TLS, "gateway": {"enabled": True, "ingress": INGRESS}})
    assert one(manifests, "Service", GATEWAY)["spec"]["sessionAffinity"] == "ClientIP"
    # An Ingress sends requests to pods, past the Service.
    annotations = one(manifests, "Ingress", GATEWAY)["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/upstream-hash-by"] == "$remote_addr"
    assert annotations.items() >= INGRESS["annotations"].items()


@pytest.mark.parametrize("name", [name for name in RELEASES if name.startswith("gateway")])
def test_the_gateway_takes_its_options(name: str, rendered: dict[str, list[Manifest]]) -> None:
    spec = one(rendered[name], "Deployment", GATEWAY)["spec"]["template"]["spec"]
    [gateway] = spec["containers"]
    verb, *arguments = gateway["args"]
    options = parse(GatewayOptions, arguments, prog="gateway", description="", environ={})
    assert verb == "gateway"
    assert options.target == f"{RELEASE}.{NAMESPACE}.svc:{ServeOptions().port}"
    assert options.tls is ("tls" in RELEASES[name])
    assert gateway["ports"] == [{"name": "http", "containerPort": options.port}]
    assert spec["terminationGracePeriodSeconds"] >= options.drain_timeout_s + 10


@releases
def test_pods_have_no_rights_they_do_not_need(
    name: str, rendered: dict[str, list[Manifest]]
) -> None:
    for deployment in (each for each in rendered[name] if each["kind"] == "Deployment"):
        spec = deployment["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"] == {"drop": ["ALL"]}


@releases
def test_what_selects_pods_finds_them(name: str, rendered: dict[str, list[Manifest]]) -> None:
    pods = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in rendered[name]
        if each["kind"] == "Deployment"
    ]
    for manifest in rendered[name]:
        spec = manifest.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector", {}))
        labels = selector.get("matchLabels", selector)
        if labels:
            # Its own component, and no other.
            assert sum(labels.items() <= pod.items() for pod in pods) == 1, manifest["kind"]


def test_memory_is_the_sum_of_its_parts() -> None:
    def limit(**values: Any) -> str:
        spec = one(render({**OPEN, **values}), "Deployment")["spec"]["template"]["spec"]
        return str(spec["containers"][0]["resources"]["limits"]["memory"])

    answers_mb = ServeOptions().max_answer_mb
    memory = {"versions": 3, "versionMi": 100}
    assert limit(memory=memory) == f"{128 + answers_mb + 300}Mi"
    options = {"SEQSERVE_MAX_ANSWER_MB": 512, "SEQSERVE_CACHE_MB": 64}
    assert limit(memory=memory, options=options) == f"{128 + 512 + 64 + 300}Mi"


def test_other_variables_give_other_pods(rendered: dict[str, list[Manifest]]) -> None:
    def checksum(name: str) -> str:
        template = one(rendered[name], "Deployment")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/variables"])

    assert checksum("open") == checksum("one server")
    assert checksum("open") != checksum("large numbers")


def test_an_option_overrides_what_the_chart_chooses() -> None:
    def variables(**options: Any) -> Any:
        return one(render({**OPEN, **SLOTS, "options": options}), "ConfigMap")["data"]

    chosen = {"SEQSERVE_HOST": "0.0.0.0", "SEQSERVE_MAX_CONNECTION_AGE_S": "300"}
    assert chosen.items() <= variables().items()
    own = variables(SEQSERVE_HOST="::", SEQSERVE_MAX_CONNECTION_AGE_S=60)
    assert {"SEQSERVE_HOST": "::", "SEQSERVE_MAX_CONNECTION_AGE_S": "60"}.items() <= own.items()


def test_servers_and_gateways_listen_at_the_host_of_the_values() -> None:
    manifests = render({**OPEN, "host": "::", "gateway": {"enabled": True}})
    data = one(manifests, "ConfigMap")["data"]
    assert data["SEQSERVE_HOST"] == data["SEQSERVE_METRICS_HOST"] == "::"
    assert '"--host=::"' in json.dumps(manifests)


def test_an_autoscaler_alone_chooses_the_number(rendered: dict[str, list[Manifest]]) -> None:
    assert one(rendered["open"], "Deployment")["spec"]["replicas"] == 2
    for name in ("scaled by cpu", "scaled by slots"):
        assert "replicas" not in one(rendered[name], "Deployment")["spec"]


def test_the_rules_are_those_of_the_compose_file(rendered: dict[str, list[Manifest]]) -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text("utf-8"))
    assert one(rendered["monitored"], "PrometheusRule")["spec"] == rules


def test_the_dashboards_are_all_there(rendered: dict[str, list[Manifest]]) -> None:
    data = one(rendered["dashboards"], "ConfigMap", f"{RELEASE}-dashboards")["data"]
    files = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
    assert data == {file.name: file.read_text("utf-8") for file in files}
    assert data


def test_a_package_has_the_rules_and_the_dashboards(tmp_path: Path) -> None:
    run("helm", "package", str(CHART), "--destination", str(tmp_path))
    [package] = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = {Path(name).name for name in archive.getnames()}
    files = (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")
    assert names >= {"rules.yml", *(file.name for file in files)}


def test_notes_say_how_to_call() -> None:
    flags = ("--namespace", NAMESPACE, "--dry-run=client", "--values", "-")
    shown = run("helm", "install", RELEASE, str(CHART), *flags, text=json.dumps(EVERYTHING))
    notes = shown.partition("NOTES:")[2]
    assert f"{RELEASE}.{NAMESPACE}.svc:50051" in notes
    assert "https://translate.example.com/docs" in notes
    assert "in clear" not in notes


def test_values_of_the_page_are_taken() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    [shown] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert one(render({**OPEN, **shown}), "ScaledObject")["spec"]["maxReplicaCount"] == 8
    assert f"with {len(RELEASES)} sets of values" in page


def test_the_base_is_what_the_chart_gives() -> None:
    values = yaml.safe_load((KUSTOMIZE / "values.yaml").read_text("utf-8"))
    base = manifests_of((KUSTOMIZE / "seqserve.yaml").read_text("utf-8"))
    assert base == render(values), "stale: run `make manifests`"
    built = manifests_of(run("kubectl", "kustomize", str(KUSTOMIZE)))

    assert sorted(built, key=itemgetter("kind")) == sorted(base, key=itemgetter("kind"))


def test_kserve_knows_every_field() -> None:
    manifests = [
        part for file in sorted(KSERVE.glob("*.yaml")) for part in manifests_of(file.read_text())
    ]
    assert {each["kind"] for each in manifests} == {"ServingRuntime", "InferenceService"}
    assert faults(manifests) == [None] * len(manifests)
    runtime = one(manifests, "ServingRuntime")
    [container] = runtime["spec"]["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    options = parse(ServeOptions, [], prog="serve", description="", environ=variables)
    assert container["ports"][0]["containerPort"] == options.port
    service = one(manifests, "InferenceService", "translate")["spec"]["predictor"]
    assert service["terminationGracePeriodSeconds"] >= options.drain_timeout_s + 10
    assert service["model"]["runtime"] == runtime["metadata"]["name"]


class Secret:
    """A Secret as it is mounted: files are links, so that all of them change at once."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self.folder = folder
        self._generation = 0
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).symlink_to(f"..data/{name}")
        self.replace(files)

    def replace(self, files: dict[str, bytes]) -> None:
        self._generation += 1
        generation = self.folder / f"..{self._generation}"
        generation.mkdir()
        for name, content in files.items():
            (generation / name).write_bytes(content)
        link = self.folder / "..next"
        link.symlink_to(generation.name)
        link.replace(self.folder / "..data")


def tokens_of(token: str) -> dict[str, bytes]:
    entry = TokenEntry(digest=digest_of(token), scopes=frozenset({Scope.GENERATE}), name="web")
    return {"tokens": f"{entry}\n".encode()}


@dataclasses.dataclass(frozen=True)
class Pod:
    """A server that runs as the chart's pod does, with its Secrets in a folder."""

    server: ServerProcess
    target: str
    folder: Path
    tokens: Secret
    token: str


def within(folder: Path, text: str) -> str:
    return text.replace("/secrets/", f"{folder}/secrets/")


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Pod]:
    folder = tmp_path_factory.mktemp("pod")
    certificate, key = (file.read_bytes() for file in certificates.server)
    authority = certificates.ca.read_bytes()
    pair = {"tls.crt": certificate, "tls.key": key}
    Secret(folder / "secrets" / "tls", {**pair, "ca.crt": authority})
    Secret(folder / "secrets" / "listener", pair)
    Secret(folder / "secrets" / "ca", {"ca.crt": authority})
    of_client = (file.read_bytes() for file in certificates.client)
    Secret(folder / "secrets" / "client", dict(zip(("tls.crt", "tls.key"), of_client, strict=True)))
    token = new_token()
    tokens = Secret(folder / "secrets" / "tokens", tokens_of(token))
    Secret(folder / "secrets" / "token", {"token": token.encode()})
    variables = one(render(EVERYTHING), "ConfigMap")["data"]
    environment = {name: within(folder, value) for name, value in variables.items()}
    # The folder and the ports of a container are its own; those of this machine are given as flags.
    assert environment["SEQSERVE_MODEL_REPOSITORY"] == "/models"
    with ServerProcess(MODELS, folder, environment=environment) as server:
        port = server.target.rpartition(":")[2]
        yield Pod(server, f"localhost:{port}", folder, tokens, token)
        server.stop()


def test_a_server_runs_as_the_chart_says(pod: Pod, certificates: Certificates) -> None:
    assert pod.server.get("/readyz")[0] == pod.server.get("/healthz")[0] == 200
    assert pod.server.stderr.startswith("{"), "the log is not JSON"
    with Client(pod.target, tls=certificates.tls(), token=pod.token) as client:
        assert "Kaffee" in client.generate("The coffee tastes good.").text


def test_a_gateway_runs_as_the_chart_says(pod: Pod) -> None:
    spec = one(render(EVERYTHING), "Deployment", GATEWAY)["spec"]["template"]["spec"]
    _, *arguments = spec["containers"][0]["args"]
    options = [within(pod.folder, each) for each in arguments if not each.startswith("--target=")]
    with gateway_of(pod.target, *options) as gateway:
        port = gateway.url.rpartition(":")[2]
        with gateway.client() as client:
            client.base_url = f"https://localhost:{port}"
            assert client.get("/readyz").status_code == 200
            answer = client.post("/v1/generate", json={"source": "The coffee tastes good."})
            assert "Kaffee" in answer.json()["hypotheses"][0]["text"]
            assert "seqserve_http_requests_total" in client.get("/metrics").text


def test_a_secret_that_changes_is_read_again(pod: Pod, certificates: Certificates) -> None:
    """The last test of the server: it takes the old token away."""
    token = new_token()

    def takes(shown: str) -> bool:
        with Client(pod.target, tls=certificates.tls(), token=shown) as client:
            try:
                client.tokenize("It rains.")
            except Unauthenticated:
                return False
        return True

    assert takes(pod.token)
    pod.tokens.replace(tokens_of(token))
    until(lambda: takes(token))
    assert not takes(pod.token)
