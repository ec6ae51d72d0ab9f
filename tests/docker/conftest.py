"""Docker for tests: the daemon of this machine, or a temporary one.

Images come from the registry. Where that cannot be reached, a daemon of our own gets stand-ins of
the same names, made from Debian packages; nobody else's daemon is given such images.
"""

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest
import yaml  # type: ignore[import-untyped]
from tests.support.process import ROOT, own_environment

from seqserve import __version__

# Kept between runs because layers cost minutes; `make clean` removes it.
DATA_ROOT = ROOT / "build" / "docker"
BASE_IMAGE = "python:3.13-slim-trixie"
SERVER_IMAGE = "seqserve:test"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_PROMETHEUS_DOCKERFILE = f"""\
FROM {BASE_IMAGE}
COPY prometheus /bin/prometheus
RUN mkdir /prometheus && chown nobody /prometheus
USER nobody
ENTRYPOINT ["/bin/prometheus"]
"""

_CHAINS = {
    "*filter": ("INPUT", "FORWARD", "OUTPUT"),
    "*nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
}


@dataclass(frozen=True, slots=True)
class Docker:
    """A daemon and its clients."""

    client: str
    compose_client: tuple[str, ...]
    environment: Mapping[str, str]
    is_ours: bool

    def run(self, *arguments: str, timeout_s: float = 600) -> str:
        """Runs ``docker`` and returns its output; a failure fails the test with that output."""
        return _run([self.client, *arguments], self.environment, timeout_s)

    def compose(self, *arguments: str, variables: Mapping[str, str], timeout_s: float) -> str:
        """Runs ``docker compose`` on the shipped file."""
        file = ["--file", str(ROOT / "docker-compose.yml")]
        command = [*self.compose_client, *file, *arguments]
        return _run(command, {**self.environment, **variables}, timeout_s)


class CommandFailed(Exception):
    """A command failed; the message ends with its output."""


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    client, compose_client = _client(), _compose_client()
    environment = own_environment() | {"DOCKER_BUILDKIT": "1"}
    if _answers([client, "version"], environment):
        yield Docker(client, compose_client, environment, is_ours=False)
        return
    with _daemon(client, environment) as host:
        yield Docker(client, compose_client, {**environment, "DOCKER_HOST": host}, is_ours=True)


@pytest.fixture(scope="session")
def server_image(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image of server/Dockerfile, after all images that it and the compose file need."""
    _provide(docker, BASE_IMAGE, _make_base)
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    _provide(docker, compose["services"]["prometheus"]["image"], _make_prometheus)
    pip = tmp_path_factory.mktemp("pip") / "pip.conf"
    pip.write_text(_pip_configuration())
    extra = compose["services"]["server"]["build"]["args"]["EXTRA"]
    default = extra.removeprefix("${SEQSERVE_EXTRA:-").removesuffix("}")
    arguments = [f"--build-arg=EXTRA={default}", f"--build-arg=VERSION={__version__}"]
    arguments += ["--network=host", f"--secret=id=pip,src={pip}", f"--tag={SERVER_IMAGE}"]
    file = ROOT / "server" / "Dockerfile"
    docker.run("build", *arguments, f"--file={file}", str(ROOT), timeout_s=1800)
    yield SERVER_IMAGE
    docker.run("image", "rm", SERVER_IMAGE)


def _skip(missing: str) -> NoReturn:
    pytest.skip(f"docker-compose.yml was NOT tried: {missing}")


def _run(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    done = subprocess.run(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    if done.returncode:
        output = (done.stdout + done.stderr)[-4000:]
        raise CommandFailed(f"{' '.join(command)} gave {done.returncode}:\n{output}")
    return done.stdout


def _answers(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    try:
        _run(command, environment, 120)
    except (CommandFailed, OSError, subprocess.TimeoutExpired):
        return False
    return True


def _client() -> str:
    """Finds a client that can build: one with BuildKit inside or with the buildx plugin."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = [path for folder in folders if (path := shutil.which("docker", path=folder))]
    for path in found:
        version = _run([path, "--version"], os.environ, 120).split()[2]
        if int(version.split(".")[0]) < 23 or _answers([path, "buildx", "version"]):
            return path
    if found:
        _skip(f"{found[0]} cannot build without its plugin buildx")
    _skip("there is no docker; on Debian: apt-get install docker.io docker-compose")


def _compose_client() -> tuple[str, ...]:
    for command in (("docker", "compose"), ("docker-compose",)):
        if _answers([*command, "version"]):
            return command
    _skip("there is neither `docker compose` nor docker-compose")


@contextmanager
def _daemon(client: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Runs a daemon on its own socket."""
    if os.geteuid():
        _skip("no Docker daemon answers, and only root can start one")
    for program in ("dockerd", "iptables-save", "iptables-restore", "ip"):
        if not shutil.which(program):
            _skip(f"no Docker daemon answers, and {program} to start one is not installed")
    DATA_ROOT.mkdir(parents=True, exist_ok=True)
    # Paths of sockets must be short.
    with TemporaryDirectory(prefix="dockerd-") as folder, _network_kept():
        host = f"unix://{folder}/socket"
        state = ["--data-root", str(DATA_ROOT), "--exec-root", f"{folder}/exec"]
        command = ["dockerd", *state, "--pidfile", f"{folder}/pid", "--host", host]
        log = Path(folder, "log")
        with log.open("w") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            _wait_for(process, [client, "--host", host, "version"], environment, log)
            yield host
        finally:
            process.terminate()
            process.wait(timeout=300)


def _wait_for(
    process: subprocess.Popen[bytes],
    question: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
) -> None:
    deadline_s = time.monotonic() + 300
    while not _answers(question, environment):
        if process.poll() is not None or time.monotonic() > deadline_s:
            _skip(f"dockerd does not start here: {log.read_text()[-1000:]}")
        time.sleep(0.2)


@contextmanager
def _network_kept() -> Iterator[None]:
    """Removes what a daemon leaves behind: firewall rules, forwarding and a bridge."""
    rules = _run(["iptables-save"], os.environ, 120)
    forwarding = Path("/proc/sys/net/ipv4/ip_forward")
    forwarded = forwarding.read_text()
    bridge = Path("/sys/class/net/docker0")
    had_bridge = bridge.exists()
    try:
        yield
    finally:
        # A table that was empty is not in the saved rules, but must be emptied as well.
        for table, chains in _CHAINS.items():
            if table not in rules:
                rules += "\n".join([table, *(f":{chain} ACCEPT" for chain in chains), "COMMIT", ""])
        subprocess.run(["iptables-restore"], input=rules, text=True, check=True, timeout=120)
        forwarding.write_text(forwarded)
        if bridge.exists() and not had_bridge:
            _run(["ip", "link", "delete", "docker0"], os.environ, 120)


def _provide(docker: Docker, image: str, make: Callable[[Docker, str, Path], None]) -> None:
    """Makes sure that an image exists: pulled, or built for the tests only."""
    if docker.run("image", "ls", "--quiet", image):
        return
    try:
        docker.run("pull", "--quiet", image, timeout_s=900)
        return
    except (CommandFailed, subprocess.TimeoutExpired) as error:
        if not docker.is_ours:
            _skip(f"{image} cannot be pulled: {error}")
    with TemporaryDirectory() as folder:
        make(docker, image, Path(folder))


def _make_base(docker: Docker, image: str, folder: Path) -> None:
    if not shutil.which("mmdebstrap"):
        _skip(f"{image} cannot be pulled, and mmdebstrap to make it is not installed")
    archive = folder / "base.tar"
    # A network that intercepts TLS has its own authority, which the image must trust as well.
    bundle = os.environ.get("SSL_CERT_FILE", _CERTIFICATES)
    options = ["--variant=minbase", "--include=ca-certificates,python3-venv"]
    options += [f"--customize-hook=upload {bundle} {_CERTIFICATES}"]
    _run(["mmdebstrap", *options, "trixie", str(archive)], os.environ, 1800)
    docker.run("import", str(archive), image)


def _make_prometheus(docker: Docker, image: str, folder: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        _skip(f"{image} cannot be pulled, and prometheus to make it from is not installed")
    shutil.copy(program, folder)
    (folder / "Dockerfile").write_text(_PROMETHEUS_DOCKERFILE)
    docker.run("build", "--tag", image, str(folder))


def _pip_configuration() -> str:
    """Returns the package index of this machine for use in builds."""
    lines = ["[global]"]
    for line in _run([sys.executable, "-m", "pip", "config", "list"], os.environ, 300).splitlines():
        key, _, quoted = line.partition("=")
        name, value = key.rpartition(".")[2], ast.literal_eval(quoted)
        # Folders of this machine do not exist in a build.
        if name in ("index-url", "extra-index-url", "trusted-host") and "file:" not in value:
            lines.append(f"{name} = " + "\n  ".join(value.split()))
    return "\n".join(lines) + "\n"
