"""The options of the commands that call a server."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqserve import Client
from seqserve.arguments import DEFAULT_TARGET, DEFAULT_TIMEOUT_S, GenerateOptions, SourceOptions
from seqserve.command.decoding import DecodingOptions
from seqserve.command.progress import outages_reported
from seqserve.errors import OptionError
from seqserve.options import option
from seqserve.retry import RetryPolicy
from seqserve.tls import TLS

_RETRY = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The server, the time for a call, and encryption."""

    target: str = option(
        DEFAULT_TARGET,
        help="Address of the server, host:port, or of several: host:port,host:port.",
        group="connection",
    )
    timeout_s: float | None = option(
        None,
        help="Seconds for each call and its retries, inf for no limit; by default"
        f" {DEFAULT_TIMEOUT_S:g}.",
        minimum=0.001,
        group="connection",
    )
    connect_timeout_s: float = option(
        _RETRY.connect_timeout_s,
        help="Seconds for which to try a server that was never reached, inf for no limit. One that"
        " was reached before is waited for as long as --timeout-s allows.",
        minimum=0,
        group="connection",
    )
    max_attempts: int | None = option(
        None,
        help="Maximum number of attempts at a call while the server is busy or away; 1 never"
        " retries. By default only --timeout-s limits them.",
        minimum=1,
        group="connection",
    )

    tls: bool = option(
        False,
        help="Encrypt the connection; every option --tls-... does so too.",
        group="connection",
    )
    tls_ca: Path | None = option(
        None,
        help="File of the authorities that may sign the server's certificate, PEM; by default the"
        " public ones.",
        group="connection",
    )
    # Not --tls-certificate and --tls-key: a server on this machine has their variables.
    tls_client_certificate: Path | None = option(
        None,
        help="File of the certificate for a server that requires one (mutual TLS), PEM.",
        group="connection",
    )
    tls_client_key: Path | None = option(
        None, help="File of the key of --tls-client-certificate, PEM.", group="connection"
    )
    tls_server_name: str | None = option(
        None,
        help="Name in the server's certificate; by default the host of --target.",
        group="connection",
    )
    token_file: Path | None = option(
        None,
        help="File of the token for a server that requires one; SEQSERVE_TOKEN may hold the token"
        " itself.",
        group="connection",
    )
    token: str | None = option(None, help="Token for a server that requires one.", secret=True)

    @contextmanager
    def connect(
        self,
        default_timeout_s: float = DEFAULT_TIMEOUT_S,
        before_report: Callable[[], object] = lambda: None,
    ) -> Generator[Client, None, None]:
        """Makes a client, and reports the outages of its server on standard error."""
        client = Client(**self.settings(default_timeout_s))
        with outages_reported(before_report), client:
            yield client

    def settings(
        self,
        default_timeout_s: float = DEFAULT_TIMEOUT_S,
        default_attempts: int | None = None,
    ) -> dict[str, Any]:
        """Returns the arguments of a client."""
        attempts = default_attempts if self.max_attempts is None else self.max_attempts
        return {
            "target": self.target,
            "timeout_s": default_timeout_s if self.timeout_s is None else self.timeout_s,
            "tls": self._tls(),
            "token": self._token(),
            "retry": RetryPolicy(max_attempts=attempts, connect_timeout_s=self.connect_timeout_s),
        }

    def _tls(self) -> TLS | None:
        tls = TLS(
            ca=self.tls_ca,
            certificate=self.tls_client_certificate,
            key=self.tls_client_key,
            server_name=self.tls_server_name,
        )
        return tls if self.tls or tls != TLS() else None

    def _token(self) -> str | None:
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise OptionError(f"--token-file: {self.token_file} cannot be read: {reason}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallOptions(ConnectionOptions):
    """The server and the model."""

    model: str | None = option(
        None, help="Name of the model; by default that of the languages, or the server's default."
    )
    model_version: int | None = option(
        None, help="Version of the model; by default the highest valid one.", minimum=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCallOptions(ModelCallOptions):
    """The server, the model, and the languages of a source and its target."""

    source_language: str | None = option(
        None, help="Code of the language of the source; `seqserve models --pairs` lists them."
    )
    target_language: str | None = option(None, help="Code of the language of the target.")

    def call(self) -> SourceOptions:
        """Returns the arguments of each call beside its texts."""
        return {
            "model": self.model,
            "version": self.model_version,
            "source_language": self.source_language,
            "target_language": self.target_language,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCallOptions(ModelCallOptions, DecodingOptions):
    """The server, the model, and how it decodes."""

    def keywords(self) -> GenerateOptions:
        """Returns the arguments of each call beside its source."""
        return {"model": self.model, "version": self.model_version, **self.decoding()}
