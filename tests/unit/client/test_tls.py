"""TLS of the client, with real servers and certificates."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from tests.certificates import Certificates

from seqserve import TLS, Client, OptionError, Unavailable, Unreachable
from seqserve.command.advice import advice_on
from seqserve.tls import read_authorities, read_pair

from .fake_server import FakeServer
from .sessions import ONCE, Connect

TOKEN = "seqserve_abc-_="


def serving(certificates: Certificates, *, mutual: bool) -> Iterator[FakeServer]:
    certificate, key = (file.read_bytes() for file in certificates.server)
    credentials = grpc.ssl_server_credentials(
        [(key, certificate)], certificates.ca.read_bytes(), require_client_auth=mutual
    )
    server = FakeServer(credentials)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def encrypted(certificates: Certificates) -> Iterator[FakeServer]:
    yield from serving(certificates, mutual=False)


@pytest.fixture(scope="module")
def mutual(certificates: Certificates) -> Iterator[FakeServer]:
    yield from serving(certificates, mutual=True)


def test_encryption(encrypted: FakeServer, certificates: Certificates, connect: Connect) -> None:
    client = connect(encrypted.target, tls=TLS(ca=certificates.ca), token=TOKEN)
    assert client.generate("good day").text == "GOOD DAY"
    assert "".join(piece.text for piece in client.stream("good day")) == "GOOD DAY"
    assert client.models()
    assert encrypted.authorizations[-3:] == [f"Bearer {TOKEN}"] * 3


def test_both_show_certificates(mutual: FakeServer, certificates: Certificates) -> None:
    with Client(mutual.target, tls=certificates.tls()) as client:
        assert client.generate("good day").text == "GOOD DAY"
    anonymous = TLS(ca=certificates.ca)
    with Client(mutual.target, tls=anonymous, retry=ONCE) as client, pytest.raises(Unavailable):
        client.models()


def test_a_server_that_is_another_is_refused(
    server: FakeServer,
    encrypted: FakeServer,
    mutual: FakeServer,
    certificates: Certificates,
    other_certificates: Certificates,
) -> None:
    """The advice goes by words of gRPC's messages, which another version of gRPC may change."""
    tls = TLS(ca=certificates.ca)
    for there, how, advised in (
        (encrypted, TLS(ca=other_certificates.ca), "--tls-ca names the file of one"),
        (encrypted, TLS(), "--tls-ca names the file of one"),
        (encrypted, replace(tls, server_name="example.com"), "--tls-server-name gives the name"),
        (encrypted, None, "one with TLS needs --tls"),
        (mutual, tls, "--tls-client-certificate"),
        (server, tls, "does not use TLS"),
    ):
        with Client(there.target, tls=how, retry=ONCE) as client, pytest.raises(Unreachable) as no:
            client.models()
        assert advised in advice_on(no.value)


def test_several_servers_need_their_name(encrypted: FakeServer, certificates: Certificates) -> None:
    target = f"{encrypted.target},{encrypted.target}"
    with pytest.raises(OptionError, match="--tls-server-name"):
        Client(target, tls=TLS(ca=certificates.ca))
    with Client(target, tls=TLS(ca=certificates.ca, server_name="localhost")) as client:
        assert client.models()


def test_one_of_two_files_is_refused_and_a_missing_one_named(certificates: Certificates) -> None:
    certificate, key = certificates.client
    with pytest.raises(OptionError, match=r"^tls\.certificate: needs tls\.key"):
        TLS(certificate=certificate).credentials()
    with pytest.raises(OptionError, match=r"^tls\.key: needs tls\.certificate"):
        TLS(key=str(key)).credentials()
    with pytest.raises(OptionError, match=r"^tls\.ca: nowhere\.pem cannot be read"):
        Client("localhost:1", tls=TLS(ca="nowhere.pem"))


NAMES = ("--cert", "--key")


def test_a_pair_of_files_is_read(certificates: Certificates, tmp_path: Path) -> None:
    certificate, key = certificates.server
    assert read_pair(certificate, key, NAMES) == (certificate.read_bytes(), key.read_bytes())
    assert read_authorities(certificates.ca, "--ca") == certificates.ca.read_bytes()
    none = tmp_path / "none"
    for name, pair in zip(NAMES, ((none, key), (certificate, none)), strict=True):
        with pytest.raises(OptionError, match=rf"^{name}: .*none cannot be read: No such"):
            read_pair(*pair, NAMES)
    # A key of another certificate; and an error does not show the key.
    secret = key.read_text().splitlines()[1]
    for pair in ((certificate, certificates.client[1]), (key, key)):
        refused = pytest.raises(OptionError, match=r"^--cert, --key: .* a certificate and its key")
        with refused as caught:
            read_pair(*pair, NAMES)
        assert secret not in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 100, -30])
def test_half_a_file_is_refused(certificates: Certificates, tmp_path: Path, length: int) -> None:
    certificate, key = certificates.server
    half = tmp_path / "half.pem"
    half.write_bytes(certificate.read_bytes()[:length])
    with pytest.raises(OptionError, match=r"^--cert, --key: "):
        read_pair(half, key, NAMES)
    with pytest.raises(OptionError, match=r"^--ca: .* holds no certificate in PEM"):
        read_authorities(half, "--ca")


def test_an_encrypted_key_is_refused_unasked(certificates: Certificates, tmp_path: Path) -> None:
    certificate, key = certificates.server
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", encrypted]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(OptionError, match=rf"^--key: {re.escape(str(encrypted))} is encrypted"):
        read_pair(certificate, encrypted, NAMES)
