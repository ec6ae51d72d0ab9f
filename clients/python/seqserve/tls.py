"""TLS of the client: whom it trusts, and what it shows of itself."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import grpc

from seqserve.errors import OptionError
from seqserve.pem import read_authorities, read_pair


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """Encrypts the connection, and makes sure who is at its other end.

    Example::

        Client("translate.example.com:50051", tls=TLS(ca="ca.pem"))
    """

    ca: str | PathLike[str] | None = None
    """File of the authorities that may sign the server's certificate, PEM; those that gRPC brings
    along, which are the public ones, where None."""
    certificate: str | PathLike[str] | None = None
    """File of the client's own certificate, PEM, for a server that asks for one (mutual TLS)."""
    key: str | PathLike[str] | None = None
    """File of its private key, PEM."""
    server_name: str | None = None
    """Name that the server's certificate must have; the host of the target where None."""

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files.

        Raises:
            OptionError: One cannot be read or is not sound, or of certificate and key one is not
                given.
        """
        authorities = None if self.ca is None else read_authorities(Path(self.ca), "tls.ca")
        if self.certificate is None and self.key is None:
            return grpc.ssl_channel_credentials(authorities)
        if self.certificate is None or self.key is None:
            given, missing = ("key", "certificate") if self.key else ("certificate", "key")
            raise OptionError(f"tls.{given}: needs tls.{missing} beside it")
        names = ("tls.certificate", "tls.key")
        certificate, key = read_pair(Path(self.certificate), Path(self.key), names)
        return grpc.ssl_channel_credentials(authorities, key, certificate)
