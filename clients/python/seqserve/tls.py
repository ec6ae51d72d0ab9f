"""TLS: the client's settings, and files of certificates and keys in PEM.

Files are checked before gRPC gets them, which reports a broken one only as a failed connection.
"""

import ssl
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import grpc

from seqserve.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """Encrypts the connection and verifies the server's certificate.

    Example::

        Client("translate.example.com:50051", tls=TLS(ca="ca.pem"))
    """

    ca: str | PathLike[str] | None = None
    """File of the authorities that may sign the server's certificate, PEM; if None the public ones,
    as gRPC ships them."""
    certificate: str | PathLike[str] | None = None
    """File of the client's certificate, PEM, for a server that requires one (mutual TLS)."""
    key: str | PathLike[str] | None = None
    """File of its private key, PEM."""
    server_name: str | None = None
    """Name in the server's certificate; the host of the target if None."""

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files.

        Raises:
            OptionError: A file is unreadable or invalid, or one of certificate and key is missing.
        """
        authorities = None if self.ca is None else read_authorities(Path(self.ca), "tls.ca")
        if self.certificate is None and self.key is None:
            return grpc.ssl_channel_credentials(authorities)
        if self.certificate is None or self.key is None:
            present, missing = ("key", "certificate") if self.key else ("certificate", "key")
            raise OptionError(f"tls.{present}: needs tls.{missing} too")
        names = ("tls.certificate", "tls.key")
        certificate, key = read_pair(Path(self.certificate), Path(self.key), names)
        return grpc.ssl_channel_credentials(authorities, key, certificate)


def read_pair(certificate: Path, key: Path, names: tuple[str, str]) -> tuple[bytes, bytes]:
    """Reads a certificate, which may be a chain, and its key; ``names`` are for errors."""
    pair = _read_file(certificate, names[0]), _read_file(key, names[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a function for the password, an encrypted key would ask the terminal for it.
        context.load_cert_chain(certificate, key, password=_no_password)
    except _Encrypted:
        raise OptionError(f"{names[1]}: {key} is encrypted; write it without a password") from None
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{names[0]}, {names[1]}: {certificate} and {key} are not a certificate and its key"
            f" in PEM: {_reason(error)}"
        ) from None
    return pair


def read_authorities(path: Path, name: str) -> bytes:
    """Reads the certificates of authorities; ``name`` is for errors."""
    data = _read_file(path, name)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except (OSError, ValueError) as error:
        raise OptionError(f"{name}: {path} holds no certificate in PEM: {_reason(error)}") from None
    return data


class _Encrypted(Exception):
    """The key has a password."""


def _no_password() -> str:
    raise _Encrypted


def _read_file(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionError(f"{name}: {path} cannot be read: {error.strerror}") from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
