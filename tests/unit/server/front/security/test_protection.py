import logging
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Certificates

from seqserve.auth import Scope, TokenEntry, digest_of
from seqserve.errors import OptionError
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.security.protection import security_of
from seqserve_server.process import logs
from seqserve_server.serve import app

Given = dict[str, dict[str, Any]]


@pytest.fixture
def given(certificates: Certificates, tmp_path: Path) -> Given:
    """What an operator may give, by a short name."""
    tokens = tmp_path / "tokens"
    entry = TokenEntry(digest=digest_of("abc"), scopes=frozenset([Scope.GENERATE]))
    tokens.write_text(f"{entry}\n")
    certificate, key = certificates.server
    return {
        "tls": {"tls_certificate": certificate, "tls_key": key},
        "mutual": {"tls_client_ca": certificates.ca},
        "tokens": {"tokens": tokens},
    }


def options(given: Given, names: str, **others: Any) -> ServeOptions:
    for name in names.split():
        others |= given[name]
    return ServeOptions(**others)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "server"])
@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ("", "the server has no encryption and no client authentication"),
        ("tokens", "the server has no encryption. "),
        ("tls", "the server has no client authentication. "),
        ("tls tokens", ""),
        ("tls mutual", ""),
        ("tls mutual tokens", ""),
    ],
)
def test_a_reachable_port_needs_tls_and_tokens_or_insecure(
    given: Given, caplog: pytest.LogCaptureFixture, host: str, names: str, missing: str
) -> None:
    closed = options(given, names, host=host)
    if missing:
        with pytest.raises(OptionError, match=rf"^--host: .*{missing}.*--insecure"):
            security_of(closed)
    else:
        security_of(closed)
    assert caplog.records == []
    security_of(options(given, names, host=host, insecure=True))
    assert caplog.messages == ["insecure"] * bool(missing)
    assert all(record.levelno == logging.WARNING for record in caplog.records)


@pytest.mark.parametrize("names", ["", "tokens", "tls", "tls mutual tokens"])
def test_within_this_machine_anything_goes(
    given: Given, caplog: pytest.LogCaptureFixture, names: str
) -> None:
    security = security_of(options(given, names))
    assert (security.certificates is not None) is ("tls" in names)
    assert (security.tokens is not None) is ("tokens" in names)
    assert caplog.records == []


def test_nothing_by_default() -> None:
    security = security_of(ServeOptions())
    assert security.certificates is security.tokens is security.authorization is None
    assert security.usage.periods("anyone") == []


def test_the_command_refuses_before_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is this process's, and stays as it is.
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    for argv in (["--host", "0.0.0.0"], ["--tokens", str(tmp_path / "none")]):
        with pytest.raises(OptionError, match=f"^{argv[0]}"):
            app.main(["--model-repository", str(tmp_path / "no such folder"), *argv])


@pytest.mark.parametrize("verbosity", ["NONE", "none", "ERROR", ""])
def test_verbosity_by_which_strangers_write_into_the_log_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, verbosity: str
) -> None:
    monkeypatch.setenv("GRPC_VERBOSITY", verbosity)
    security_of(ServeOptions())
    warned = caplog.messages
    assert warned == ([] if verbosity.upper() == "NONE" else ["log can be forged"])
