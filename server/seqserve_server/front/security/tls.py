"""The certificate that the server shows, and the authorities of those that it wants to see."""

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
        """Reads them.

        Args:
            certificate: The server's, with those that lead to its authority behind it, PEM.
            key: Its private key, PEM.
            client_ca: Authorities that must have signed a client's certificate, PEM; no client is
                asked for one where None.

        Raises:
            OptionError: A file cannot be read, or they do not belong together.
        """
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        files = {_CERTIFICATE: certificate, _KEY: key}
        if client_ca is not None:
            files[_CLIENT_CA] = client_ca
        self._files = Reloaded("certificate", files, self._read)

    @property
    def asks_clients(self) -> bool:
        """Whether clients must show a certificate too."""
        return self._client_ca is not None

    def credentials(self) -> grpc.ServerCredentials:
        """Gives what a port is opened with."""
        shown = self._files.value

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            before, shown = shown, self._files.value
            # None: as before.
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
    """Reads what the options name; None where they name nothing.

    Raises:
        OptionError: One needs another, or a file is broken.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None:
        raise OptionError(f"{_KEY if key else _CLIENT_CA}: needs {_CERTIFICATE} beside it")
    if key is None:
        raise OptionError(f"{_CERTIFICATE}: needs {_KEY} beside it")
    return Certificates(certificate, key, client_ca)
