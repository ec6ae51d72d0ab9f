"""The certificates of the server: what is refused, and what a new connection is shown."""

from __future__ import annotations

import logging
import os
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
from seqserve_server.front.security.tls import Certificates, certificates_of


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
