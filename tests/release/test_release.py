"""A release as its users meet it: what is in it, and the first thing of each extra."""

import hashlib
import re
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from seqserve import __version__

from .conftest import ROOT, VERSIONS, Environment, Install, interpreter_of, run

pytestmark = pytest.mark.release

[TORCH] = re.findall(r"^TORCH \?= (\S+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
SENTENCE, WORD = "The coffee tastes good.", "Kaffee"
READY = r"seqserve ready on (\S+),"
SERVE = ("seqserve", "serve", "--port", "0", "--metrics-port", "0")
_PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")

versions = pytest.mark.parametrize("version", VERSIONS)


def python_of(version: str) -> str:
    found = interpreter_of(version)
    if found is None:
        pytest.skip(f"there is no python{version}: the release was NOT tried with it")
    return found


def generate(environment: Environment, address: str, *options: str) -> str:
    return environment.run("seqserve", "generate", "--target", address, *options, SENTENCE)


def test_the_tree_gives_the_same_wheel_as_the_sdist(dist: Path, tmp_path: Path) -> None:
    """`python -m build` makes the wheel of the sdist."""
    builder = ROOT / "build" / "release" / "bin" / "python"
    run([str(builder), "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)])
    [wheel] = tmp_path.iterdir()
    assert wheel.read_bytes() == (dist / wheel.name).read_bytes()


def test_there_are_a_wheel_and_an_sdist(dist: Path) -> None:
    ours = f"seqserve-{__version__}"
    names = {path.name for path in dist.iterdir()} - {f"{ours}.cdx.json", "SHA256SUMS"}
    assert names == {f"{ours}-py3-none-any.whl", f"{ours}.tar.gz"}
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest


def test_the_wheel_brings_a_model_of_each_direction(dist: Path) -> None:
    [wheel] = dist.glob("seqserve-*.whl")
    assert wheel.stat().st_size < 20e6
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    shipped = {name.split("/")[2] for name in names if name.startswith("seqserve_server/shipped/")}
    assert shipped == {"default", "en-de", "de-en"}
    assert {name.partition("/")[0] for name in names} == {
        *(path.parent.name for path in ROOT.glob("*/seqserve_*/__init__.py")),
        *("seqserve", f"seqserve-{__version__}.dist-info"),
    }


@versions
def test_the_client_alone(version: str, install: Install) -> None:
    environment = install("", python_of(version))
    names = environment.names() - {"pip"}
    assert names == {"seqserve", "grpcio", "protobuf", "typing-extensions"}
    assert __version__ in environment.run("seqserve", "--version")
    environment.run("python", "-c", "from seqserve import AsyncClient, Client")
    with pytest.raises(AssertionError, match=r"pip install 'seqserve\[server\]'"):
        environment.run("seqserve", "serve")


@versions
def test_a_server_translates_in_an_empty_folder(version: str, install: Install) -> None:
    environment = install("server", python_of(version))
    with environment.running(READY, *SERVE) as address:
        assert WORD in generate(environment, address)


def test_a_server_takes_what_was_fetched_first(install: Install) -> None:
    environment = install("server")
    korean = ROOT / "models" / "ko-en"
    assert "ko-en/3" in environment.run("seqserve", "models", "fetch", str(korean))
    with environment.running(r"models: (.*)", *SERVE) as models:
        assert "ko-en/3" in models
        assert "en-de/5" not in models


def test_it_detects_languages_and_traces(install: Install) -> None:
    environment = install("server,tracing")
    # Nobody listens there, which a server bears.
    traced = (*SERVE, "--otlp-endpoint", "http://localhost:1")
    with environment.running(READY, *traced) as address:
        options = ("--source-language", "auto", "--target-language", "de")
        assert WORD in generate(environment, address, *options)


@pytest.mark.parametrize(
    ("extra", "options", "path"),
    [("gateway", ("--port", "0"), "/healthz"), ("playground", ("--listen", "127.0.0.1:0"), "/")],
)
def test_what_serves_http(
    extra: str, options: tuple[str, ...], path: str, install: Install
) -> None:
    environment = install(extra)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with (
        environment.running(r"on (http://\S+) for", "seqserve", extra, *options) as address,
        direct.open(address + path, timeout=60) as reply,
    ):
        assert reply.status == 200


def test_what_reads_documents(install: Install) -> None:
    environment = install("translate")
    (environment.empty / "page.md").write_text("# Title\n")
    unreachable = ("--target", "localhost:1", "--max-attempts", "1", "--timeout-s", "5")
    with pytest.raises(AssertionError, match="seqserve serve"):
        environment.run("seqserve", "translate", "page.md", "-o", "seite.md", *unreachable)


def test_what_trains_exports_imports_and_draws(install: Install) -> None:
    environment = install("import,plot", sys.executable, TORCH)
    environment.run("seqserve", "prepare", "--numbers", "300", "--out", "numbers.tsv")
    environment.run("seqserve", "plot", "positions", "rotary", "--out", "positions.svg")
    assert (environment.empty / "positions.svg").stat().st_size > 1000
    modules = "seqserve_model.train, seqserve_export.pipeline, seqserve_import.importing"
    environment.run("python", "-c", f"import {modules}")


@versions
def test_all_that_a_server_needs_has_wheels_for_arm(version: str, dist: Path) -> None:
    """Resolved only: there is no such machine."""
    platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_aarch64")]
    [wheel] = dist.glob("seqserve-*.whl")
    wanted = [f"{wheel}[server,gateway,tracing]"]
    only = ["--only-binary", ":all:", "--python-version", version, *platforms]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run([*pip, "--dry-run", "--target", "nowhere", *only, *wanted])
