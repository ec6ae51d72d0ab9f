"""Protection of the gRPC port by TLS and tokens; refuses an unprotected port that is reachable."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

from seqserve.address import is_loopback
from seqserve.errors import OptionError
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.security.auth_tokens import Tokens
from seqserve_server.front.security.reloading import Reload
from seqserve_server.front.security.tls import Certificates, certificates_of
from seqserve_server.process import logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS and tokens of the gRPC port."""

    certificates: Certificates | None = None
    """None if connections are not encrypted."""
    tokens: Tokens | None = None
    """None if clients need no token."""

    def reloads(self) -> dict[str, Reload]:
        """Returns the last reload of the files, by the option that names them."""
        parts = {"--tls-certificate": self.certificates, "--tokens": self.tokens}
        return {option: part.last_reload for option, part in parts.items() if part is not None}

    def expiry_s(self) -> Mapping[str, float]:
        """Returns when the certificates expire, in seconds since 1970, by option."""
        return {} if self.certificates is None else self.certificates.expiry_s


def security_of(options: ServeOptions) -> Security:
    """Reads the files that the options name; logs a warning if protection is missing.

    Raises:
        OptionError: A file is broken, or the port is reachable from other machines and unprotected
            without ``--insecure``.
    """
    security = Security(
        certificates=certificates_of(
            options.tls_certificate, options.tls_key, options.tls_client_ca
        ),
        tokens=None if options.tokens is None else Tokens(options.tokens),
    )
    missing = _missing(security)
    if missing and not is_loopback(options.host):
        if not options.insecure:
            raise OptionError(
                f"--host: other machines reach {options.host}, and there is no"
                f" {' and no '.join(missing)}. Give --tls-certificate and --tls-key, and --tokens"
                " or --tls-client-ca; or --insecure if the network itself keeps strangers out."
                " docs/security.md explains how"
            )
        facts = {"host": options.host, "missing": ", ".join(missing)}
        logs.event("insecure", facts, logging.WARNING)
    _warn_of_forgery()
    return security


def _warn_of_forgery() -> None:
    """Warns if the operator lets gRPC's core write lines of its own; the default is none."""
    verbosity = os.environ.get("GRPC_VERBOSITY", "")
    if verbosity.upper() != "NONE":
        reason = "gRPC writes what strangers send to standard error as it is; set NONE"
        logs.event(
            "log can be forged", {"GRPC_VERBOSITY": verbosity, "reason": reason}, logging.WARNING
        )


def _missing(security: Security) -> list[str]:
    missing = []
    if security.certificates is None:
        # Without encryption anyone on the network can read the tokens.
        missing.append("encryption")
    asks_clients = security.certificates is not None and security.certificates.asks_clients
    if security.tokens is None and not asks_clients:
        missing.append("proof of who calls")
    return missing
