import logging
import re
import shutil
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.certificates import Certificates as Files
from tests.support.logged import fields_of

from seqserve.errors import OptionError
from seqserve_server.front.security.protection import Certificates, certificates_of, expiry_s


@pytest.fixture
def files(certificates: Files, tmp_path: Path) -> Files:
    """A copy that may be changed."""
    return Files(Path(shutil.copytree(certificates.folder, tmp_path / "certificates")))


class Port:
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
    assert caplog.messages == ["certificate kept"] * 3
    assert before.splitlines()[1] not in caplog.text
    files.replace_server(other_certificates)
    assert port.shown() == after
    assert caplog.records[-1].message == "certificate read again"


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
    assert fields_of(caplog) == [facts]
    caplog.clear()
    expire(files.server[0], "220203040506")
    assert found.files.last.succeeded
    assert caplog.messages == ["certificate expired"]
    caplog.clear()
    expire(files.server[0], "490203040506")
    assert found.expiry_s["--tls-certificate"] == 2_495_937_906
    assert caplog.records == []


def test_certificates_expire_with_the_first(files: Files, other_certificates: Files) -> None:
    certificate, key = files.server
    expire(certificate, "490203040506")
    expire(files.ca, "480203040506")
    certificate.write_text(certificate.read_text() + files.ca.read_text())
    files.ca.write_text(other_certificates.ca.read_text() + files.ca.read_text())
    found_s = Certificates(certificate, key, files.ca).expiry_s
    assert found_s["--tls-certificate"] == 2_464_315_506 > found_s["--tls-client-ca"]


def test_options_that_need_each_other(certificates: Files) -> None:
    (certificate, key), ca = certificates.server, certificates.ca
    assert certificates_of(None, None, None) is None
    for client_ca in (None, ca):
        found = certificates_of(certificate, key, client_ca)
        assert found is not None and found.asks_clients is (client_ca is not None)
    for files, says in (
        ((certificate, None, ca), "--tls-certificate: needs --tls-key"),
        ((None, key, ca), "--tls-key: needs --tls-certificate"),
        ((None, None, ca), "--tls-client-ca: needs --tls-certificate"),
    ):
        with pytest.raises(OptionError, match=f"^{says}"):
            certificates_of(*files)


def test_files_are_named_by_their_options(certificates: Files, tmp_path: Path) -> None:
    (certificate, key), nothing = certificates.server, tmp_path / "nothing"
    for files, says in (
        ((nothing, key, None), "--tls-certificate: .* cannot be read"),
        ((certificate, nothing, None), "--tls-key: .* cannot be read"),
        ((certificate, key, nothing), "--tls-client-ca: .* cannot be read"),
        ((certificate, key, key), "--tls-client-ca: .* holds no certificate"),
    ):
        with pytest.raises(OptionError, match=f"^{says}"):
            Certificates(*files)


UTC_TIME, GENERALIZED_TIME = 0x17, 0x18


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


VERSION = element(0xA0, element(2, b"\2"))


def certificate(tag: int, not_after: str, version: bytes = VERSION) -> bytes:
    """Encodes the fields of a certificate that come before its subject, and no others, as PEM."""
    serial, algorithm, issuer = element(2, b"\1"), element(0x30, b""), element(0x30, bytes(200))
    times = element(UTC_TIME, b"200101000000Z") + element(tag, not_after.encode())
    fields = version + serial + algorithm + issuer + element(0x30, times)
    return pem(element(0x30, element(0x30, fields)))


def pem(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).encode()


@pytest.mark.parametrize(
    ("tag", "not_after", "expected_s"),
    [
        (UTC_TIME, "300203040506Z", 1_896_321_906),
        (UTC_TIME, "491231235959Z", 2_524_607_999),
        (UTC_TIME, "500101000000Z", -631_152_000),
        (UTC_TIME, "991231235959Z", 946_684_799),
        (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
        # No end, in RFC 5280.
        (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
    ],
)
@pytest.mark.parametrize("version", [VERSION, b""], ids=["version 3", "version 1"])
def test_time_is_read(tag: int, not_after: str, expected_s: int, version: bytes) -> None:
    assert expiry_s(certificate(tag, not_after, version)) == expected_s


def test_first_of_several_counts() -> None:
    times = ("320101000000Z", "300203040506Z", "310101000000Z")
    chain = b"".join(b"of somebody\n" + certificate(UTC_TIME, time) for time in times)
    assert expiry_s(chain) == 1_896_321_906


@pytest.mark.parametrize("not_after", ["", "3002030405Z", "301303040506Z", "300203040506+0100"])
def test_malformed_time_is_unknown(not_after: str) -> None:
    assert expiry_s(certificate(UTC_TIME, not_after)) is None


@given(st.binary(max_size=40))
def test_what_is_no_certificate_has_no_time(data: bytes) -> None:
    assert expiry_s(data) is None
    assert expiry_s(pem(data)) is None
    assert expiry_s(pem(element(0x30, element(0x30, data)))) is None
