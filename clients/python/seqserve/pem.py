"""Files of certificates and keys in PEM, checked before gRPC gets them.

gRPC reports a broken file only as a connection that fails.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from seqserve.errors import OptionError


def read_pair(certificate: Path, key: Path, names: tuple[str, str]) -> tuple[bytes, bytes]:
    """Reads a certificate, which may be a chain, and its key; ``names`` are for errors.

    Raises:
        OptionError: A file is unreadable, the key is encrypted, or the two do not belong together.
    """
    pair = _read(certificate, names[0]), _read(key, names[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a function for the password, an encrypted key would ask the terminal for it.
        context.load_cert_chain(certificate, key, password=_no_password)
    except _Encrypted:
        raise OptionError(f"{names[1]}: {key} is encrypted; write it without a password") from None
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{names[0]}, {names[1]}: {certificate} and {key} are no certificate and its key in"
            f" PEM: {_reason(error)}"
        ) from None
    return pair


def read_authorities(path: Path, name: str) -> bytes:
    """Reads the certificates of authorities; ``name`` is for errors.

    Raises:
        OptionError: The file is unreadable, or has no certificate.
    """
    data = _read(path, name)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except (OSError, ValueError) as error:
        raise OptionError(f"{name}: {path} holds no certificate in PEM: {_reason(error)}") from None
    return data


class _Encrypted(Exception):
    """The key has a password."""


def _no_password() -> str:
    raise _Encrypted


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(f"{name}: {path} cannot be read: {error.strerror}") from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
