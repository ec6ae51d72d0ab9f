"""Asks the server of this machine whether it takes calls: the image's HEALTHCHECK.

Reads the variables of ``seqserve serve``, so that it finds the server wherever those put it. It
asks ``/readyz``, for which it needs no certificate whatever the gRPC port demands.
Exit status: 0 the server takes calls, 1 it does not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve_server.front.address import address_of

_TIMEOUT_S = 2.0
# One listens on all addresses, but asks at one.
_LOOPBACKS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_READY = "ready"
_MOST_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthcheckOptions:
    """Where the server listens."""

    metrics_host: str = option("127.0.0.1", help="Address of /readyz.")
    metrics_port: int = option(9464, help="Port of /readyz.", minimum=1, maximum=65535)


def main(argv: Sequence[str] | None = None) -> int:
    """Asks once.

    Args:
        argv: Arguments after the module's name; the process's own where None.

    Returns:
        The exit status.
    """
    try:
        options = parse(
            HealthcheckOptions,
            sys.argv[1:] if argv is None else argv,
            prog="python -m seqserve_server.front.healthcheck",
            description="Tells by its exit status whether the server takes calls.",
        )
    except OptionError as error:
        print(f"healthcheck: {error}", file=sys.stderr)
        return 1
    host = _LOOPBACKS.get(options.metrics_host, options.metrics_host)
    status = _status(host, options.metrics_port)
    print(f"{address_of(host, options.metrics_port)}: {status}")
    return 0 if status == _READY else 1


def _status(host: str, port: int) -> str:
    """Gives what the server says of itself, or what went wrong."""
    # Straight to it, whatever proxy the environment has for the outside world.
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().read(_MOST_BYTES).decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
