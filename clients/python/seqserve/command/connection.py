"""The options of the sub-commands that call a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqserve import Client
from seqserve.arguments import DEFAULT_TARGET, DEFAULT_TIMEOUT_S
from seqserve.errors import OptionError
from seqserve.options import option
from seqserve.tls import TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where the server is and how long to wait for it."""

    target: str = option(
        DEFAULT_TARGET,
        help="Where the server is: host:port, several as host:port,host:port.",
        group="connection",
    )
    timeout_s: float = option(
        DEFAULT_TIMEOUT_S,
        help="Seconds for each call and its retries; inf for no limit.",
        minimum=0.001,
        group="connection",
    )

    tls: bool = option(
        False,
        help="Encrypt the connection; the options --tls-... do so too.",
        group="connection",
    )
    tls_ca: Path | None = option(
        None,
        help="Authorities that may sign the server's certificate, PEM; the public ones if not"
        " given.",
        group="connection",
    )
    # Not --tls-certificate and --tls-key: their variables hold what a server on this machine shows.
    tls_client_certificate: Path | None = option(
        None,
        help="Certificate to show to a server that asks for one (mutual TLS), PEM.",
        group="connection",
    )
    tls_client_key: Path | None = option(
        None, help="Private key of --tls-client-certificate, PEM.", group="connection"
    )
    tls_server_name: str | None = option(
        None,
        help="Name that the server's certificate must have; the target's host if not given.",
        group="connection",
    )
    token_file: Path | None = option(
        None,
        help="File of the token that the server asks for; SEQSERVE_TOKEN may hold the token"
        " itself.",
        group="connection",
    )
    token: str | None = option(None, help="The token that the server asks for.", secret=True)

    def connect(self) -> Client:
        """Makes a client.

        Raises:
            OptionError: The target is malformed, a file is not sound, or the token would be sent
                in clear.
        """
        return Client(
            self.target, timeout_s=self.timeout_s, tls=self._tls(), token=self._shown_token()
        )

    def _tls(self) -> TLS | None:
        tls = TLS(
            ca=self.tls_ca,
            certificate=self.tls_client_certificate,
            key=self.tls_client_key,
            server_name=self.tls_server_name,
        )
        return tls if self.tls or tls != TLS() else None

    def _shown_token(self) -> str | None:
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise OptionError(f"--token-file: {self.token_file} cannot be read: {reason}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallOptions(ConnectionOptions):
    """Which model of the server is called."""

    model: str | None = option(None, help="Name of the model; the server's default if not given.")
    model_version: int | None = option(
        None, help="Version of the model; the highest sound one if not given.", minimum=1
    )
