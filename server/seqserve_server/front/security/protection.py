"""Protection of the gRPC port: TLS, tokens, and a refusal to leave a reachable port unprotected."""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import grpc

from seqserve.address import is_loopback
from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve.tls import read_authorities, read_pair
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.security.reloading import Reload, Reloaded
from seqserve_server.front.security.tokens import Authorization, Tokens
from seqserve_server.front.security.usage import Usage
from seqserve_server.process import logs

_CERTIFICATE, _KEY, _CLIENT_CA = map(flag_of, ("tls_certificate", "tls_key", "tls_client_ca"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS and tokens of the gRPC port."""

    certificates: Certificates | None = None
    """None if connections are not encrypted."""
    tokens: Tokens | None = None
    """None if clients need no token."""
    usage: Usage = field(default_factory=Usage)
    """Usage of the token names, also in the file of the option, if it is set."""

    @property
    def authorization(self) -> Authorization | None:
        """What authorizes calls; None if clients need no token."""
        return None if self.tokens is None else Authorization(self.tokens, self.usage)

    def reloads(self) -> dict[str, Reload]:
        """Returns the last reload of the files, by the option that names them."""
        parts = {"--tls-certificate": self.certificates, "--tokens": self.tokens}
        return {option: part.files.last for option, part in parts.items() if part is not None}

    def expiry_s(self) -> Mapping[str, float]:
        """Returns when the certificates expire, in seconds since 1970, by option."""
        return {} if self.certificates is None else self.certificates.expiry_s


def security_of(options: ServeOptions) -> Security:
    """Reads the options' files; refuses a port open to others without protection or consent."""
    if options.usage is not None and options.tokens is None:
        raise OptionError("--usage: needs --tokens, whose names are counted")
    has_usage = options.usage is not None
    security = Security(
        certificates=certificates_of(
            options.tls_certificate, options.tls_key, options.tls_client_ca
        ),
        tokens=None if options.tokens is None else Tokens(options.tokens, has_usage=has_usage),
        usage=Usage(options.usage),
    )
    missing = _missing(security)
    if missing and not is_loopback(options.host):
        if not options.insecure:
            raise OptionError(
                f"--host: other machines can reach {options.host}, and the server has no"
                f" {' and no '.join(missing)}. Give --tls-certificate and --tls-key, and --tokens"
                " or --tls-client-ca; or --insecure if the network itself keeps strangers out."
                " docs/security.md explains how"
            )
        facts = {"host": options.host, "missing": ", ".join(missing)}
        logs.event("insecure", facts, logging.WARNING)
    verbosity = os.environ.get("GRPC_VERBOSITY", "")
    if verbosity.upper() != "NONE":
        reason = "gRPC writes data of strangers to standard error as it is; set NONE"
        logs.event(
            "log can be forged", {"GRPC_VERBOSITY": verbosity, "reason": reason}, logging.WARNING
        )
    return security


def _missing(security: Security) -> list[str]:
    missing = []
    if security.certificates is None:
        # Without encryption anyone on the network can read the tokens.
        missing.append("encryption")
    asks_clients = security.certificates is not None and security.certificates.asks_clients
    if security.tokens is None and not asks_clients:
        missing.append("client authentication")
    return missing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    configuration: grpc.ServerCertificateConfiguration
    expiry_s: Mapping[str, float]


class Certificates:
    """The files of ``--tls-certificate``, ``--tls-key`` and ``--tls-client-ca``.

    gRPC asks for them at each new connection, so a renewed certificate needs no restart.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        files = {_CERTIFICATE: certificate, _KEY: key}
        if client_ca is not None:
            files[_CLIENT_CA] = client_ca
        self.asks_clients = client_ca is not None
        """Whether clients must show a certificate (mutual TLS)."""
        self.files = Reloaded("certificate", files, self._read)

    @property
    def expiry_s(self) -> Mapping[str, float]:
        """When the first certificate of each file expires, in seconds since 1970, by option."""
        return self.files.value.expiry_s

    def credentials(self) -> grpc.ServerCredentials:
        """Makes the credentials of a gRPC port."""
        shown = self.files.value.configuration

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            before, shown = shown, self.files.value.configuration
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
        for option, time_s in known_s.items():
            # Only a warning: clients may not check it, or the clock may be wrong.
            if time_s < time.time():
                facts = {"option": option, "since": datetime.fromtimestamp(time_s, UTC).isoformat()}
                logs.event("certificate expired", facts, logging.WARNING)
        return _Files(
            configuration=grpc.ssl_server_certificate_configuration(
                [(key, certificate)], authorities
            ),
            expiry_s=known_s,
        )


def certificates_of(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> Certificates | None:
    """Reads the files that the options name; returns None if none is given."""
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None:
        raise OptionError(f"{_KEY if key else _CLIENT_CA}: needs {_CERTIFICATE} too")
    if key is None:
        raise OptionError(f"{_CERTIFICATE}: needs {_KEY} too")
    return Certificates(certificate, key, client_ca)


_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]++-----END CERTIFICATE-----")
_VERSION, _UTC_TIME = 0xA0, 0x17
_VALIDITY = 3
"""Place of the validity among the fields of a certificate, without the version, which may lack."""


def expiry_s(pem: bytes) -> float | None:
    """Returns when the first certificate of a file expires, in seconds since 1970; None if none."""
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
    while data:
        tag, size, begin = data[0], data[1], 2
        if size & 0x80:
            # The length has this many bytes.
            begin += size & 0x7F
            size = int.from_bytes(data[2:begin])
        yield tag, data[begin : begin + size]
        data = data[begin + size :]
