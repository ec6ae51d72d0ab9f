import logging
import math
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from seqserve import TLS, RetryPolicy
from seqserve.command import connection
from seqserve.command.connection import ConnectionOptions
from seqserve.errors import OptionError
from seqserve.options import parse

from ..fake_server import FakeServer
from .conftest import Run


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each client."""
    settings: list[dict[str, Any]] = []

    def client(target: str, **arguments: Any) -> nullcontext[None]:
        settings.append(arguments)
        return nullcontext()

    monkeypatch.setattr(connection, "Client", client)
    return settings


Settings = list[dict[str, Any]]


def read(*argv: str, **environ: str) -> ConnectionOptions:
    return parse(ConnectionOptions, argv, prog="seqserve x", description="", environ=environ)


def connect(*argv: str, **environ: str) -> None:
    with read(*argv, **environ).connect():
        pass


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
def test_any_tls_option_turns_tls_on(settings: Settings, argv: list[str], tls: TLS | None) -> None:
    connect(*argv)
    assert [(each["tls"], each["token"]) for each in settings] == [(tls, None)]


def test_an_explicit_no_tls_wins_over_the_environment(settings: Settings) -> None:
    environ = {"SEQSERVE_TLS": "true", "SEQSERVE_TLS_CA": "/run/ca.pem", "SEQSERVE_TOKEN": "t"}
    connect(**environ)
    connect("--no-tls", **environ)
    connect("--no-tls", "--tls-ca", "ca.pem", **environ)
    assert {each["token"] for each in settings} == {"t"}
    given = TLS(ca=Path("ca.pem"))
    assert [each["tls"] for each in settings] == [TLS(ca=Path("/run/ca.pem")), None, given]


def test_a_token_file_overrides_the_variable(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "web.token"
    file.write_text("from-the-file\n")
    connect(SEQSERVE_TOKEN="from-the-variable")
    connect("--token-file", str(file), SEQSERVE_TOKEN="from-the-variable")
    assert [each["token"] for each in settings] == ["from-the-variable", "from-the-file"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "web.token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(OptionError, match=r"^--token-file: .*web\.token cannot be read: "):
        connect("--token-file", str(file))


def test_the_token_goes_with_the_calls(
    seqserve: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQSERVE_TOKEN", "abc")
    assert seqserve("generate", "good day")[0] == 0
    assert server.authorizations == ["Bearer abc"]


@pytest.mark.parametrize(
    ("argv", "timeout_s", "retry"),
    [
        ([], 30.0, RetryPolicy(connect_timeout_s=1.0)),
        (
            ["--timeout-s", "inf", "--max-attempts", "3"],
            math.inf,
            RetryPolicy(connect_timeout_s=1.0, max_attempts=3),
        ),
        (["--connect-timeout-s", "60"], 30.0, RetryPolicy(connect_timeout_s=60.0)),
    ],
)
def test_the_patience_of_the_client(
    settings: Settings, argv: list[str], timeout_s: float, retry: RetryPolicy
) -> None:
    connect(*argv)
    assert [(each["timeout_s"], each["retry"]) for each in settings] == [(timeout_s, retry)]


def test_the_number_of_connections() -> None:
    given = (read(), read("--connections", "3"), read(SEQSERVE_CONNECTIONS="4"))
    assert [each.settings()["connections"] for each in given] == [None, 3, 4]
    with pytest.raises(OptionError, match=r"^--connections: "):
        read("--connections", "0")


def test_an_outage_is_reported_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("seqserve.client")
    with read().connect(before_report=lambda: print("before", file=sys.stderr)):
        log.warning("there:1 is not available")
        log.info("there:1 is available again")
    log.info("nobody reads this")
    assert capsys.readouterr().err == (
        "before\nseqserve: there:1 is not available\nbefore\nseqserve: there:1 is available again\n"
    )
