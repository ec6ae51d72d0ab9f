"""Tells a passed deadline from a cancel; gRPC ends a handler in the same way for both.

The client's own clock may end a call first, so the server sees a cancel with some time left: on the
wire a timeout has few digits and is rounded up, by as much as 1 %.
Source: ``Timeout`` in gRPC over HTTP/2,
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

_ROUNDING = 0.01
_JITTER_S = 0.005


def has_passed(remaining_s: float | None, elapsed_s: float) -> bool:
    """Tells whether a cancelled call had reached its deadline, if it has one."""
    return remaining_s is not None and remaining_s <= _JITTER_S + _ROUNDING * elapsed_s
