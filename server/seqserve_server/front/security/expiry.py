"""Reads when certificates expire.

Sources: RFC 5280, sections 4.1 (certificate) and 4.1.2.5 (validity); ITU-T X.690, section 8.1, for
the encoding, DER.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
_VALIDITY = 3
"""Place of the validity among the fields of a certificate, without the version, which may lack."""


def expiry_s(pem: bytes) -> float | None:
    """Returns when the first certificate of a file expires, in seconds since 1970.

    None if there is no certificate, or one that is malformed.
    """
    try:
        return min(_expiry_s(found) for found in _PEM.findall(pem.decode(errors="replace")))
    except (ValueError, IndexError):
        return None


def _expiry_s(pem: str) -> float:
    [(_, certificate)] = _elements(ssl.PEM_cert_to_DER_cert(pem))
    (_, content), *_ = _elements(certificate)
    fields = [field for tag, field in _elements(content) if tag != _VERSION]
    _, (tag, text) = _elements(fields[_VALIDITY])
    # UTCTime has a year of two digits; from 50 on they mean 19xx.
    century = (b"19" if text >= b"50" else b"20") if tag == _UTC_TIME else b""
    digits = re.fullmatch(rb"(\d{14})Z", century + text)
    if digits is None:
        raise ValueError("no time")
    return datetime.strptime(digits[1].decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Splits DER into elements: tag and content."""
    while data:
        tag, size, begin = data[0], data[1], 2
        if size & 0x80:
            # The length has this many bytes.
            begin += size & 0x7F
            size = int.from_bytes(data[2:begin])
        yield tag, data[begin : begin + size]
        data = data[begin + size :]
