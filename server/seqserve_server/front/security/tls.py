"""TLS certificate of the server, and authorities for client certificates."""

from __future__ import annotations

from pathlib import Path

import grpc

from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve.pem import read_authorities, read_pair
from seqserve_server.front.security.reloading import Reloaded

_CERTIFICATE, _KEY, _CLIENT_CA = map(flag_of, ("tls_certificate", "tls_key", "tls_client_ca"))


class Certificates:
    """The files of ``--tls-certificate``, ``--tls-key`` and ``--tls-client-ca``.

    gRPC asks for them at each new connection, so a renewed certificate needs no restart.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        """Reads PEM files; without ``client_ca`` clients need no certificate.

        Raises:
            OptionError: A file cannot be read, or key and certificate do not match.
        """
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        files = {_CERTIFICATE: certificate, _KEY: key}
        if client_ca is not None:
            files[_CLIENT_CA] = client_ca
        self._files = Reloaded("certificate", files, self._read)

    @property
    def asks_clients(self) -> bool:
        """Whether clients must show a certificate (mutual TLS)."""
        return self._client_ca is not None

    def credentials(self) -> grpc.ServerCredentials:
        """Makes the credentials of a gRPC port."""
        shown = self._files.value

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            before, shown = shown, self._files.value
            # None means unchanged.
            return None if shown is before else shown

        return grpc.dynamic_ssl_server_credentials(
            shown,
            fetch,  # type: ignore[arg-type]  # None is fine; the stubs do not know
            require_client_authentication=self.asks_clients,
        )

    def _read(self) -> grpc.ServerCertificateConfiguration:
        certificate, key = read_pair(self._certificate, self._key, (_CERTIFICATE, _KEY))
        authorities = None
        if self._client_ca is not None:
            authorities = read_authorities(self._client_ca, _CLIENT_CA)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)


def certificates_of(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> Certificates | None:
    """Reads the files that the options name; returns None if none is given.

    Raises:
        OptionError: An option lacks the one it needs, or a file is broken.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None:
        raise OptionError(f"{_KEY if key else _CLIENT_CA}: needs {_CERTIFICATE} beside it")
    if key is None:
        raise OptionError(f"{_CERTIFICATE}: needs {_KEY} beside it")
    return Certificates(certificate, key, client_ca)
