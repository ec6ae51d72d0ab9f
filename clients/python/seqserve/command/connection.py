"""The options of the sub-commands that call a server."""

from __future__ import annotations

from dataclasses import dataclass

from seqserve.client import DEFAULT_TARGET, DEFAULT_TIMEOUT_S, Client
from seqserve.options import option


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

    def connect(self) -> Client:
        """Makes a client.

        Raises:
            OptionError: The target is malformed.
        """
        return Client(self.target, timeout_s=self.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallOptions(ConnectionOptions):
    """Which model of the server is called."""

    model: str | None = option(None, help="Name of the model; the server's default if not given.")
    model_version: int | None = option(
        None, help="Version of the model; the highest sound one if not given.", minimum=1
    )
