"""Options of the commands that call a server: the connection, the model, and how it decodes.

Each option of decoding that the proto declares is a flag."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields, make_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqserve import Client
from seqserve.arguments import (
    DEFAULT_TARGET,
    DEFAULT_TIMEOUT_S,
    GenerateOptions,
    Priority,
    SourceOptions,
)
from seqserve.command.progress import outages_reported
from seqserve.declarations import DECLARATIONS, Declaration
from seqserve.files import read_text
from seqserve.options import flag_of, option
from seqserve.retry import RetryPolicy
from seqserve.tls import TLS

_connection = partial(option, group="connection")
OUTPUT = "output"
"""Group of the flags that choose what is printed."""
SCORES = "return_scores"
"""The only option of that group whose result a line has a place for."""
NEED_JSON = [each.name for each in DECLARATIONS.values() if each.group == OUTPUT]
NEED_JSON.remove(SCORES)

# Their variables are options of a server on this machine, which no client obeys.
_OF_SERVER = {"segmentation"}
_HEADINGS = {
    "alternatives": "alternatives, as many as --num-hypotheses",
    "sampling": "sampling, in place of search; any of these switches it on",
    "drafts": "drafts of the answer, which do not change it",
    "constraints": "constraints; tokens are as `generate --json` shows them, with ▁ for a space",
}


def _flag(declared: Declaration) -> tuple[str, object, object]:
    flag = option(
        None,
        help=_help(declared),
        fault=partial(_fault, declared) if declared.bounds else None,
        metavar="SOURCE=TARGET" if declared.kind == dict[str, str] else None,
        group=_HEADINGS.get(declared.group, declared.group),
        has_variable=declared.name not in _OF_SERVER,
    )
    return declared.name, declared.kind | None, flag


def _fault(declared: Declaration, value: Any) -> str | None:
    fits = value in declared.choices if declared.choices else declared.allows(value)
    return None if fits else declared.bounds


def _help(declared: Declaration) -> str:
    words = re.split(r"\b([a-z]+(?:_[a-z]+)+)\b", declared.text)
    text = "".join(flag_of(word) if word in DECLARATIONS else word for word in words)
    if declared.name in NEED_JSON:
        return f"With --json: {text[0].lower()}{text[1:]}"
    if declared.name == SCORES:
        return f"{text} If set, a line begins with the score and a tab."
    return f"{text} Spaces separate tokens." if declared.kind == list[list[str]] else text


if TYPE_CHECKING:
    # Typed code reads the options from `decoding()`.
    _DecodingFlags = object
else:
    _DecodingFlags = make_dataclass(
        "_DecodingFlags", map(_flag, DECLARATIONS.values()), frozen=True, kw_only=True
    )


def options_outside(*groups: str) -> set[str]:
    """Names the options of other groups, for a help that leaves them to ``seqserve generate``."""
    return {each.name for each in DECLARATIONS.values() if each.group not in groups}


# No slots: Python cannot join two bases that both have them.
@dataclass(frozen=True, kw_only=True)
class DecodingOptions(_DecodingFlags):
    """Decoding options from the command line; the server chooses what is not set."""

    priority: Priority | None = option(
        None, help="Order of requests while they wait; normal by default."
    )

    def decoding(self) -> GenerateOptions:
        """Returns the keywords of each call."""
        keywords = GenerateOptions()
        for field in fields(DecodingOptions):
            keywords[field.name] = getattr(self, field.name)  # type: ignore[literal-required]
        return keywords


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """The server, the time for a call, and encryption."""

    target: str = _connection(
        DEFAULT_TARGET, help="Address of the server, host:port, or of several: host:port,host:port."
    )
    timeout_s: float | None = _connection(
        None,
        help="Seconds for each call and its retries, inf for no limit; by default"
        f" {DEFAULT_TIMEOUT_S:g}.",
        minimum=0.001,
    )
    # Less than in a program, for somebody may look at it.
    connect_timeout_s: float = _connection(
        1.0,
        help="Seconds to keep trying a server that was never reached, inf for no limit. If it was"
        " reached before, only --timeout-s limits the wait.",
        minimum=0,
    )
    max_attempts: int | None = _connection(
        None,
        help="Maximum number of attempts at a call while the server is busy or away; 1 never"
        " retries. By default only --timeout-s limits them, and a gateway makes 2.",
        minimum=1,
    )
    connections: int | None = _connection(
        None,
        help="Maximum number of connections to each server; by default 8, but one until many"
        " calls are in flight.",
        minimum=1,
    )

    tls: bool = _connection(
        False,
        help="Encrypt the connection; implied by every other --tls-... option. --no-tls also"
        " overrides their variables.",
    )
    tls_ca: Path | None = _connection(
        None,
        help="File of the authorities that may sign the server's certificate, PEM; by default the"
        " public ones.",
    )
    # Not --tls-certificate and --tls-key: a server on this machine has their variables.
    tls_client_certificate: Path | None = _connection(
        None, help="File of the certificate for a server that requires one (mutual TLS), PEM."
    )
    tls_client_key: Path | None = _connection(
        None, help="File of the key of --tls-client-certificate, PEM."
    )
    tls_server_name: str | None = _connection(
        None, help="Name in the server's certificate; by default the host of --target."
    )
    token_file: Path | None = _connection(
        None,
        help="File of the token for a server that requires one; SEQSERVE_TOKEN may hold the token"
        " itself.",
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
        self, default_timeout_s: float = DEFAULT_TIMEOUT_S, default_attempts: int | None = None
    ) -> dict[str, Any]:
        """Returns the arguments of a client."""
        attempts = default_attempts if self.max_attempts is None else self.max_attempts
        return {
            "target": self.target,
            "timeout_s": default_timeout_s if self.timeout_s is None else self.timeout_s,
            "tls": self._tls(),
            "token": self._token(),
            "connections": self.connections,
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
        return read_text(self.token_file, "--token-file").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallOptions(ConnectionOptions):
    """The server and the model."""

    model: str | None = option(
        None,
        help="Name of the model; by default the model of the languages, or the server's default.",
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
        """Returns the arguments of each call except its texts."""
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
        """Returns the arguments of each call except its source."""
        return {"model": self.model, "version": self.model_version, **self.decoding()}
