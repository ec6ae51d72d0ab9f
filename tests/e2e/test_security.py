"""A server with TLS and tokens, and the renewal of its files."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.certificates import Certificates
from tests.support.frames import conversed
from tests.support.process import ONCE, PATIENCE_S, ServerProcess

from seqserve import (
    TLS,
    Client,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from seqserve.command.main import main
from seqserve_server.front import healthcheck

from .client_hello import client_hello

SOURCE = "The old train waits for"


@dataclass(frozen=True, slots=True)
class Guarded:
    """A server and its files, which tests leave unchanged."""

    server: ServerProcess
    certificates: Certificates
    tokens: Path

    def client(self, token: str | None = None, tls: TLS | None = None) -> Client:
        tls = tls or self.certificates.tls()
        return Client(self.server.target, tls=tls, token=token, retry=ONCE)


def new_token(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["token", *argv]) == 0
    return capsys.readouterr().out.strip()


@pytest.fixture(scope="module")
def guarded(
    repository: Path, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    own = Certificates(Path(shutil.copytree(certificates.folder, folder / "certificates")))
    tokens = folder / "tokens"
    assert main(["token", "--tokens", str(tokens), "--name", "nobody"]) == 0
    options = [*own.options(mutual=True), "--tokens", str(tokens), "--slots", "8"]
    # It listens on all addresses without --insecure. The level debug shows every log line.
    options += ["--host", "0.0.0.0", "--log-level", "debug"]
    with ServerProcess(repository, folder, *options) as server:
        server.target = server.target.replace("0.0.0.0", "127.0.0.1")
        yield Guarded(server, own, tokens)
        server.stop()
        assert "insecure" not in server.stderr and "forged" not in server.stderr


@pytest.fixture
def token(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> str:
    return new_token(capsys, "--tokens", str(guarded.tokens), "--name", "caller")


def test_calls_with_certificate_and_token(guarded: Guarded, token: str) -> None:
    with guarded.client(token) as client:
        result = client.generate(SOURCE, max_decoding_length=5)
        pieces = list(client.stream(SOURCE, max_decoding_length=5))
        assert "".join(piece.text for piece in pieces) == result.text
        assert client.models()
    assert "caller=caller" in guarded.server.stderr
    assert token not in guarded.server.stderr


def test_the_command_uses_certificate_and_token(
    guarded: Guarded, token: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "caller.token"
    file.write_text(f"{token}\n")
    certificate, key = map(str, guarded.certificates.client)
    argv = ["models", "--target", guarded.server.target, "--token-file", str(file)]
    argv += ["--tls-ca", str(guarded.certificates.ca)]
    argv += ["--tls-client-certificate", certificate, "--tls-client-key", key]
    assert main(argv) == 0
    assert "endless" in capsys.readouterr().out


def test_no_token_no_answer(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (None, "seqserve_of-somebody-else"):
        with guarded.client(wrong) as client, pytest.raises(Unauthenticated, match="send a valid"):
            client.generate(SOURCE)
    admin = new_token(capsys, "--tokens", str(guarded.tokens), "--scope", "admin")
    with guarded.client(admin) as client, pytest.raises(PermissionDenied, match="'generate'"):
        client.models()


def test_a_client_without_a_certificate_is_cut_off(
    guarded: Guarded, token: str, other_certificates: Certificates
) -> None:
    ca = guarded.certificates.ca
    for tls in (TLS(ca=ca), replace(other_certificates.tls(), ca=ca)):
        with guarded.client(token, tls) as client, pytest.raises(Unavailable):
            client.models()
    # Unencrypted calls fail too.
    with Client(guarded.server.target, retry=ONCE) as client, pytest.raises(Unavailable):
        client.models()


def test_probes_need_no_token(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> None:
    port = guarded.server.metrics_url.rpartition(":")[2]
    assert healthcheck.main(["--metrics-port", port]) == 0
    credentials = guarded.certificates.tls().credentials()
    with grpc.secure_channel(guarded.server.target, credentials) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        status = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S).status
    assert status == health_pb2.HealthCheckResponse.SERVING


def test_the_certificate_is_renewed_without_a_restart(
    guarded: Guarded, token: str, certificates: Certificates, other_certificates: Certificates
) -> None:
    renewed = replace(guarded.certificates.tls(), ca=other_certificates.ca)
    with guarded.client(token) as connected:
        assert connected.models()
        # The state between the writing of the two files.
        shutil.copyfile(other_certificates.server[0], guarded.certificates.server[0])
        with guarded.client(token) as client:
            assert client.models()
        assert "certificate kept" in guarded.server.stderr
        assert guarded.server.value("reload_successful", option="--tls-certificate") == 0
        guarded.certificates.replace_server(other_certificates)
        with guarded.client(token, renewed) as client:
            assert client.models()
        with guarded.client(token) as client, pytest.raises(Unavailable, match="VERIFY_FAILED"):
            client.models()
        # Existing connections stay.
        assert connected.models()
    guarded.certificates.replace_server(certificates)
    with guarded.client(token) as client:
        assert client.models()


def test_texts_of_clients_appear_nowhere(guarded: Guarded, token: str) -> None:
    """The server logs at the level debug; the other levels only omit lines."""
    canary = "Xanthippe"
    refused: list[dict[str, Any]] = [
        {"suppress_tokens": [canary]},
        {"target_prefix": f"{canary} " * 20_000},
        {"stop_sequences": [canary] * 99},
        {"terms": {canary: ""}, "beam_size": 2},
        {"end_tokens": [canary]},
        {"target_prefix_tokens": [canary]},
        {"vocabulary_allow": [canary]},
    ]
    with guarded.client(token) as client:
        client.generate(canary, max_decoding_length=5)
        for _ in client.stream(canary, max_decoding_length=5):
            pass
        client.generate_batch([canary, canary * 90_000], max_decoding_length=5)
        client.generate("a", stop_sequences=[canary], max_decoding_length=40)
        client.generate("a", target_prefix=canary, max_decoding_length=40)
        for options in refused:
            with pytest.raises(InvalidArgument):
                client.generate("a", **options)
        with pytest.raises(InvalidArgument):
            client.score("a", canary * 90_000)
        with pytest.raises(NotFound):
            client.generate("a", model=canary)
    with guarded.client(canary) as client, pytest.raises(Unauthenticated):
        client.generate(canary)
    server = guarded.server
    assert server.stderr.count("reason=INVALID_FIELD") >= len(refused) + 1
    for text in (server.stdout, server.stderr, server.get("/metrics")[1]):
        assert text and canary not in text


def test_a_server_name_of_a_stranger_forges_no_line(guarded: Guarded) -> None:
    """A client without certificate and token needs only to connect."""
    for name in (b'x\n{"level": "error", "event": "forged"}\n', b"x\n2026 error forged\n"):
        assert conversed(guarded.server.target, [client_hello(name)]) == b""
    lines = [*guarded.server.stdout.splitlines(), *guarded.server.stderr.splitlines()]
    assert "forged" not in "".join(lines)
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\dT\S+ (debug|info|warning|error) |seqserve ready on ", line)
