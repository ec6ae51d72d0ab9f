"""TLS of the client, with real servers and certificates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest
from tests.certificates import Certificates

from seqserve import TLS, AsyncClient, Client, OptionError, RetryPolicy, Unavailable, Unreachable
from seqserve.command.advice import advice_on

from .fake_server import FakeServer

ONCE = RetryPolicy(max_attempts=1)
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


def test_calls_are_encrypted_and_show_the_token(
    encrypted: FakeServer, certificates: Certificates
) -> None:
    with Client(encrypted.target, tls=TLS(ca=certificates.ca), token=TOKEN) as client:
        assert client.generate("good day").text == "GOOD DAY"
        assert "".join(piece.text for piece in client.stream("good day")) == "GOOD DAY"
        assert client.models()
    assert encrypted.authorizations[-3:] == [f"Bearer {TOKEN}"] * 3


async def test_async_calls_too(encrypted: FakeServer, certificates: Certificates) -> None:
    async with AsyncClient(encrypted.target, tls=TLS(ca=certificates.ca), token=TOKEN) as client:
        assert (await client.generate("good day")).text == "GOOD DAY"
        assert [piece async for piece in client.stream("good day")]
    assert encrypted.authorizations[-2:] == [f"Bearer {TOKEN}"] * 2


def test_both_show_certificates(mutual: FakeServer, certificates: Certificates) -> None:
    with Client(mutual.target, tls=certificates.tls()) as client:
        assert client.generate("good day").text == "GOOD DAY"
    anonymous = TLS(ca=certificates.ca)
    with Client(mutual.target, tls=anonymous, retry=ONCE) as client, pytest.raises(Unavailable):
        client.models()


@pytest.mark.parametrize("changes", [{"ca": None}, {"server_name": "example.com"}])
def test_a_server_that_is_another_is_refused(
    encrypted: FakeServer, certificates: Certificates, changes: dict[str, str | None]
) -> None:
    tls = replace(TLS(ca=certificates.ca), **changes)
    with (
        Client(encrypted.target, tls=tls, retry=ONCE) as client,
        pytest.raises(Unavailable, match=r"CERTIFICATE_VERIFY_FAILED|Hostname Verification"),
    ):
        client.models()


def test_each_cause_has_its_advice(
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
        (encrypted, replace(tls, server_name="example.com"), "--tls-server-name gives the name"),
        (encrypted, None, "one with TLS needs --tls"),
        (mutual, tls, "--tls-client-certificate"),
        (server, tls, "does not use TLS"),
    ):
        with Client(there.target, tls=how, retry=ONCE) as client, pytest.raises(Unreachable) as no:
            client.models()
        assert advised in advice_on(no.value)


def test_a_server_signed_by_another_authority_is_refused(
    encrypted: FakeServer, other_certificates: Certificates
) -> None:
    tls = TLS(ca=other_certificates.ca)
    with (
        Client(encrypted.target, tls=tls, retry=ONCE) as client,
        pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.models()


def test_several_servers_need_a_server_name(
    encrypted: FakeServer, certificates: Certificates
) -> None:
    target = f"{encrypted.target},{encrypted.target}"
    with pytest.raises(OptionError, match="--tls-server-name"):
        Client(target, tls=TLS(ca=certificates.ca))
    with Client(target, tls=TLS(ca=certificates.ca, server_name="localhost")) as client:
        assert client.models()


def test_one_of_certificate_and_key_is_refused(certificates: Certificates) -> None:
    certificate, key = certificates.client
    with pytest.raises(OptionError, match=r"^tls\.certificate: needs tls\.key"):
        TLS(certificate=certificate).credentials()
    with pytest.raises(OptionError, match=r"^tls\.key: needs tls\.certificate"):
        TLS(key=str(key)).credentials()


def test_a_missing_file_is_named() -> None:
    with pytest.raises(OptionError, match=r"^tls\.ca: nowhere\.pem cannot be read"):
        Client("localhost:1", tls=TLS(ca="nowhere.pem"))
