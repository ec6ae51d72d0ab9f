"""When certificates expire."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.front.security.protection import expiry_s

UTC_TIME, GENERALIZED_TIME = 0x17, 0x18


def element(tag: int, content: bytes) -> bytes:
    """Encodes an element of DER."""
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
