"""Artifacts without a model in them: their files are a few bytes, with the right hashes."""

import hashlib
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Certificates

from seqserve.command.main import main
from seqserve_server.artifact.files import FileDigest
from seqserve_server.artifact.manifest import REQUIRED_FILES, Manifest

SHIPPED = Path(__file__).parents[4] / "models" / "en-de" / "4"


def make_artifact(repository: Path, name: str = "toy", version: int = 1) -> Path:
    """Writes an artifact and returns its folder."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    files = {}
    for file in REQUIRED_FILES:
        content = f"{file} of {name}/{version}".encode()
        (folder / file).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files[file] = FileDigest(sha256=digest, bytes=len(content))
    manifest = replace(Manifest.read(SHIPPED), name=name, version=version, files=files)
    manifest.write(folder)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with ``toy/1`` and ``toy/2``."""
    for version in (1, 2):
        make_artifact(tmp_path / "source", version=version)
    return tmp_path / "source"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """The place of a repository that is not there yet."""
    return tmp_path / "models"


def fetch(source: Path | str, models: Path, *arguments: str) -> int:
    """Runs the command; gives its exit status."""
    return main(["models", "fetch", str(source), *arguments, "--model-repository", str(models)])


@contextmanager
def https(handler: Callable[..., Any], certificates: Certificates) -> Iterator[str]:
    """Yields the address of a server whose requests a handler answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.server)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _trusted(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    monkeypatch.setenv("NO_PROXY", "*")
