"""Asks the server of this machine whether it takes calls: the image's HEALTHCHECK.

Reads the variables of ``seqserve serve``, so that it finds the server wherever those put it.
Exit status: 0 the server takes calls, 1 it does not.
Source: gRPC health checking, https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve_server.address import address_of

_TIMEOUT_S = 2.0
# One listens on all addresses, but asks at one.
_LOOPBACKS = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthcheckOptions:
    """Where the server listens."""

    host: str = option("127.0.0.1", help="Address that the server listens on.")
    port: int = option(50051, help="Port of the gRPC service.", minimum=1, maximum=65535)


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
            prog="python -m seqserve_server.healthcheck",
            description="Tells by its exit status whether the server takes calls.",
        )
    except OptionError as error:
        print(f"healthcheck: {error}", file=sys.stderr)
        return 1
    target = _target(options)
    status = _status(target)
    print(f"{target}: {status}")
    return 0 if status == "SERVING" else 1


def _target(options: HealthcheckOptions) -> str:
    return address_of(_LOOPBACKS.get(options.host, options.host), options.port)


def _status(target: str) -> str:
    """Gives the status of the whole server, or what went wrong."""
    # A proxy for the outside world is none for this machine.
    with grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0)]) as channel:
        request = health_pb2.HealthCheckRequest(service="")
        try:
            reply = health_pb2_grpc.HealthStub(channel).Check(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))


if __name__ == "__main__":
    sys.exit(main())
