"""A TLS ClientHello written by hand, so that its server name can be any bytes.

Sources: RFC 5246 (TLS 1.2), sections 6.2.1 and 7.4.1.2; RFC 6066, section 3 (server name);
RFC 7301, section 3.1 (ALPN).
"""

import os

_SERVER_NAME, _GROUPS, _SIGNATURES, _ALPN, _VERSIONS = 0, 10, 13, 16, 43


def client_hello(server_name: bytes) -> bytes:
    """Encodes the record of a client that knows one cipher suite, ECDHE-ECDSA-AES128-GCM."""
    extensions = b"".join(
        _number(kind, 2) + _sized(content, 2)
        for kind, content in (
            (_SERVER_NAME, _sized(b"\0" + _sized(server_name, 2), 2)),
            (_GROUPS, _sized(_number(0x001D, 2), 2)),
            (_SIGNATURES, _sized(_number(0x0403, 2), 2)),
            (_ALPN, _sized(_sized(b"h2", 1), 2)),
            (_VERSIONS, _sized(_number(0x0303, 2), 1)),
        )
    )
    body = (
        *(_number(0x0303, 2), os.urandom(32), _sized(b"", 1)),
        *(_sized(_number(0xC02B, 2), 2), _sized(b"\0", 1), _sized(extensions, 2)),
    )
    return b"\x16\x03\x01" + _sized(b"\x01" + _sized(b"".join(body), 3), 2)


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big")


def _sized(data: bytes, size: int) -> bytes:
    return _number(len(data), size) + data
