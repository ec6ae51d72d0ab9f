"""The certificates of the server: what is refused, and what a new connection is shown."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from tests.certificates import Certificates as Files

from seqserve.errors import OptionError
from seqserve_server.front.security.protection import Certificates, certificates_of


@pytest.fixture
def files(certificates: Files, tmp_path: Path) -> Files:
    """A copy that may be changed."""
    return Files(Path(shutil.copytree(certificates.folder, tmp_path / "certificates")))


class Port:
    """One that is open with certificates."""

    def __init__(self, certificates: Certificates) -> None:
        self._server = grpc.server(ThreadPoolExecutor(1))
        self._port = self._server.add_secure_port("127.0.0.1:0", certificates.credentials())
        self._server.start()

    def shown(self) -> str:
        """Gives the certificate that a new connection is shown, as PEM."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(("127.0.0.1", self._port)) as raw,
            context.wrap_socket(raw) as connection,
        ):
            found = connection.getpeercert(binary_form=True)
        assert found is not None
        return ssl.DER_cert_to_PEM_cert(found)

    def close(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def port(files: Files) -> Iterator[Port]:
    port = Port(Certificates(*files.server, files.ca))
    yield port
    port.close()


def test_a_renewed_certificate_is_shown_to_the_next_connection(
    port: Port, files: Files, other_certificates: Files
) -> None:
    before = files.server[0].read_text()
    assert [port.shown(), port.shown()] == [before, before]
    files.replace_server(other_certificates)
    after = other_certificates.server[0].read_text()
    assert [port.shown(), port.shown()] == [after, after]


def test_a_broken_pair_leaves_the_old_one(
    port: Port, files: Files, other_certificates: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    certificate, _ = files.server
    before = certificate.read_text()
    after = other_certificates.server[0].read_text()
    for broken in (after[:100], after, ""):
        # Half of it; the certificate without its key; nothing.
        certificate.write_text(broken)
        assert [port.shown(), port.shown()] == [before, before]
    assert [record.message for record in caplog.records] == ["certificate kept"] * 3
    assert before.splitlines()[1] not in caplog.text
    files.replace_server(other_certificates)
    assert port.shown() == after
    assert caplog.records[-1].message == "certificate read again"


def test_a_pipe_in_the_place_of_a_file_holds_up_no_connection(
    port: Port, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = files.server
    before = certificate.read_text()
    for path, option in (
        (certificate, "--tls-certificate"),
        (key, "--tls-key"),
        (files.ca, "--tls-client-ca"),
    ):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        assert port.shown() == before
        assert caplog.records[-1].fields == {"reason": f"{option}: {path} is not a regular file"}  # type: ignore[attr-defined]
        with pytest.raises(OptionError, match=f"^{option}: .* is not a regular file"):
            Certificates(certificate, key, files.ca)
        path.unlink()
        path.write_bytes(content)


def expire(certificate: Path, time: str) -> None:
    """Replaces the time, ``YYMMDDHHMMSS``, at which a certificate expires."""
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    begin, end = re.findall(rb"\x17\x0d\d{12}Z", der)
    changed = der.replace(begin + end, begin + b"\x17\x0d" + time.encode() + b"Z")
    certificate.write_text(ssl.DER_cert_to_PEM_cert(changed))


def test_expired_certificate_is_warned_of_at_start_and_at_each_reload(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    expire(files.server[0], "210203040506")
    found = Certificates(*files.server, files.ca)
    (record,) = caplog.records
    assert (record.message, record.levelno) == ("certificate expired", logging.WARNING)
    facts = {"option": "--tls-certificate", "since": "2021-02-03T04:05:06+00:00"}
    assert record.fields == facts  # type: ignore[attr-defined]
    caplog.clear()
    expire(files.server[0], "220203040506")
    assert found.last_reload.succeeded
    assert [record.message for record in caplog.records] == ["certificate expired"]
    caplog.clear()
    expire(files.server[0], "490203040506")
    assert found.expiry_s["--tls-certificate"] == 2_495_937_906
    assert caplog.records == []


def test_a_file_of_several_certificates_expires_with_the_first(
    files: Files, other_certificates: Files
) -> None:
    certificate, key = files.server
    expire(certificate, "490203040506")
    expire(files.ca, "480203040506")
    certificate.write_text(certificate.read_text() + files.ca.read_text())
    files.ca.write_text(other_certificates.ca.read_text() + files.ca.read_text())
    expiry_s = Certificates(certificate, key, files.ca).expiry_s
    assert expiry_s["--tls-certificate"] == 2_464_315_506
    assert expiry_s["--tls-client-ca"] < 2_464_315_506


def test_options_that_need_each_other(certificates: Files) -> None:
    certificate, key = certificates.server
    assert certificates_of(None, None, None) is None
    found = certificates_of(certificate, key, None)
    assert found is not None and not found.asks_clients
    found = certificates_of(certificate, key, certificates.ca)
    assert found is not None and found.asks_clients
    with pytest.raises(OptionError, match=r"^--tls-certificate: needs --tls-key"):
        certificates_of(certificate, None, certificates.ca)
    with pytest.raises(OptionError, match=r"^--tls-key: needs --tls-certificate"):
        certificates_of(None, key, certificates.ca)
    with pytest.raises(OptionError, match=r"^--tls-client-ca: needs --tls-certificate"):
        certificates_of(None, None, certificates.ca)


def test_files_are_named_by_their_options(certificates: Files, tmp_path: Path) -> None:
    certificate, key = certificates.server
    nothing = tmp_path / "nothing"
    with pytest.raises(OptionError, match=r"^--tls-certificate: .* cannot be read"):
        Certificates(nothing, key, None)
    with pytest.raises(OptionError, match=r"^--tls-key: .* cannot be read"):
        Certificates(certificate, nothing, None)
    with pytest.raises(OptionError, match=r"^--tls-client-ca: .* cannot be read"):
        Certificates(certificate, key, nothing)
    with pytest.raises(OptionError, match=r"^--tls-client-ca: .* holds no certificate"):
        Certificates(certificate, key, key)
