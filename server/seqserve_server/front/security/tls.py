"""TLS certificate of the server, and authorities for client certificates."""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc

from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve.pem import read_authorities, read_pair
from seqserve_server.front.security.reloading import Reload, Reloaded
from seqserve_server.process import logs

_CERTIFICATE, _KEY, _CLIENT_CA = map(flag_of, ("tls_certificate", "tls_key", "tls_client_ca"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """What the files hold."""

    configuration: grpc.ServerCertificateConfiguration
    expiry_s: Mapping[str, float]


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

    @property
    def last_reload(self) -> Reload:
        """The last reload of the files."""
        return self._files.last

    @property
    def expiry_s(self) -> Mapping[str, float]:
        """When the first certificate of each file expires, in seconds since 1970, by option."""
        return self._files.value.expiry_s

    def credentials(self) -> grpc.ServerCredentials:
        """Makes the credentials of a gRPC port."""
        shown = self._files.value.configuration

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            before, shown = shown, self._files.value.configuration
            # None means unchanged.
            return None if shown is before else shown

        return grpc.dynamic_ssl_server_credentials(
            shown,
            fetch,  # type: ignore[arg-type]  # None is fine; the stubs do not know
            require_client_authentication=self.asks_clients,
        )

    def _read(self) -> _Files:
        certificate, key = read_pair(self._certificate, self._key, (_CERTIFICATE, _KEY))
        authorities = None
        shown = {_CERTIFICATE: certificate}
        if self._client_ca is not None:
            authorities = shown[_CLIENT_CA] = read_authorities(self._client_ca, _CLIENT_CA)
        expiries_s = {option: expiry_s(pem) for option, pem in shown.items()}
        known_s = {option: time_s for option, time_s in expiries_s.items() if time_s is not None}
        _warn_of_expired(known_s)
        return _Files(
            configuration=grpc.ssl_server_certificate_configuration(
                [(key, certificate)], authorities
            ),
            expiry_s=known_s,
        )


def _warn_of_expired(expiry_s: Mapping[str, float]) -> None:
    """Warns only: clients that do not check it, or a wrong clock, must not keep a server down."""
    for option, time_s in expiry_s.items():
        if time_s < time.time():
            facts = {"option": option, "since": datetime.fromtimestamp(time_s, UTC).isoformat()}
            logs.event("certificate expired", facts, logging.WARNING)


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


_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
_VALIDITY = 3
"""Place of the validity among the fields of a certificate, without the version, which may lack."""


def expiry_s(pem: bytes) -> float | None:
    """Returns when the first certificate of a file expires, in seconds since 1970.

    None if there is no certificate, or one that is malformed.
    """
    try:
        return min(
            _expiry_s(certificate) for certificate in _PEM.findall(pem.decode(errors="replace"))
        )
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
