"""TLS of the client: the authorities that it trusts, and its own certificate."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import grpc

from seqserve.errors import OptionError
from seqserve.pem import read_authorities, read_pair


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
            raise OptionError(f"tls.{present}: needs tls.{missing} beside it")
        names = ("tls.certificate", "tls.key")
        certificate, key = read_pair(Path(self.certificate), Path(self.key), names)
        return grpc.ssl_channel_credentials(authorities, key, certificate)
