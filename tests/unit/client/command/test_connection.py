"""Options of the commands that call a server: encryption and token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seqserve import TLS
from seqserve.command import connection
from seqserve.command.connection import ConnectionOptions
from seqserve.errors import OptionError
from seqserve.options import parse

from ..fake_server import FakeServer

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[TLS | None, str | None]]:
    """The arguments of each client."""
    told: list[tuple[TLS | None, str | None]] = []

    def client(target: str, *, timeout_s: float, tls: TLS | None, token: str | None) -> None:
        told.append((tls, token))

    monkeypatch.setattr(connection, "Client", client)
    return told


def read(*argv: str, **environ: str) -> ConnectionOptions:
    return parse(ConnectionOptions, argv, prog="seqserve x", description="", environ=environ)


@pytest.mark.parametrize(
    ("argv", "tls"),
    [
        ([], None),
        (["--tls"], TLS()),
        (["--tls-ca", "ca.pem"], TLS(ca=Path("ca.pem"))),
        (["--tls-server-name", "x"], TLS(server_name="x")),
        (
            ["--tls-client-certificate", "a", "--tls-client-key", "b"],
            TLS(certificate=Path("a"), key=Path("b")),
        ),
    ],
)
def test_any_tls_option_turns_tls_on(
    told: list[tuple[TLS | None, str | None]], argv: list[str], tls: TLS | None
) -> None:
    read(*argv).connect()
    assert told == [(tls, None)]


def test_a_client_ignores_the_certificate_of_a_server_in_the_same_environment(
    told: list[tuple[TLS | None, str | None]],
) -> None:
    read(
        SEQSERVE_TLS_CERTIFICATE="/run/server.pem",
        SEQSERVE_TLS_KEY="/run/server.key",
        SEQSERVE_TLS_CLIENT_CA="/run/ca.pem",
    ).connect()
    assert told == [(None, None)]


def test_a_token_file_overrides_the_variable(
    told: list[tuple[TLS | None, str | None]], tmp_path: Path
) -> None:
    file = tmp_path / "web.token"
    file.write_text("from-the-file\n")
    read(SEQSERVE_TOKEN="from-the-variable").connect()
    read("--token-file", str(file), SEQSERVE_TOKEN="from-the-variable").connect()
    assert [token for _, token in told] == ["from-the-variable", "from-the-file"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "web.token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(OptionError, match=r"^--token-file: .*web\.token cannot be read: "):
        read("--token-file", str(file)).connect()


def test_the_token_goes_with_the_calls(
    seqserve: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQSERVE_TOKEN", "abc")
    assert seqserve("generate", "good day")[0] == 0
    assert server.authorizations == ["Bearer abc"]
