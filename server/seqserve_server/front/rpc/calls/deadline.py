"""Tells a deadline that passed from a caller who went away; gRPC ends a handler alike for both.

The caller's own clock may end a call first, and what comes here then is a cancel with some time
left: on the wire a timeout has few digits and is rounded up, by as much as 1 %.
Source: ``Timeout`` in gRPC over HTTP/2,
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

_ROUNDING = 0.01
_JITTER_S = 0.005


def has_passed(remaining_s: float | None, elapsed_s: float) -> bool:
    """Tells whether a call that was ended had come to its deadline.

    Args:
        remaining_s: Until the deadline as the server knows it; None without one.
        elapsed_s: Since the call came.
    """
    return remaining_s is not None and remaining_s <= _JITTER_S + _ROUNDING * elapsed_s
