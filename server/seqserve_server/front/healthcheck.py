"""Asks ``/readyz`` of the local server whether it takes calls; the HEALTHCHECK of the image.

It reads the same environment variables as ``seqserve serve``, and needs no certificate even if the
gRPC port does. Exit status: 0 if the server takes calls, else 1.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

from seqserve.address import address_of
from seqserve.errors import OptionError
from seqserve.options import option, parse

_TIMEOUT_S = 2.0
# A server listens on all addresses; a client connects to one.
_LOOPBACKS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_READY = "ready"
_MAX_ANSWER_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthcheckOptions:
    """Address of the server."""

    metrics_host: str = option("127.0.0.1", help="Address of /readyz.")
    metrics_port: int = option(9464, help="Port of /readyz.", minimum=1, maximum=65535)


def main(argv: Sequence[str] | None = None, timeout_s: float = _TIMEOUT_S) -> int:
    """Asks once, prints the answer and returns the exit status."""
    try:
        options = parse(
            HealthcheckOptions,
            sys.argv[1:] if argv is None else argv,
            prog="python -m seqserve_server.front.healthcheck",
            description="Exits with status 0 if the server takes calls.",
        )
    except OptionError as error:
        print(f"healthcheck: {error}", file=sys.stderr)
        return 1
    host = _LOOPBACKS.get(options.metrics_host, options.metrics_host)
    status = _status(host, options.metrics_port, timeout_s)
    print(f"{address_of(host, options.metrics_port)}: {status}")
    return 0 if status == _READY else 1


def _status(host: str, port: int, timeout_s: float) -> str:
    # Unlike urllib, it ignores the proxies of the environment.
    connection = HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().read(_MAX_ANSWER_BYTES).decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
