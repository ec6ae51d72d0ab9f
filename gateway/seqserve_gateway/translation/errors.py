"""Errors as the APIs of translation services write them."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import JSONResponse, Response

from seqserve_gateway.failure import Failure


def error_as(member: str) -> Callable[[Failure, str], Response]:
    """Returns a function that writes a failure as JSON whose only member is the reason."""

    def write(failure: Failure, request_id: str) -> Response:
        # Their clients know 403 for every key that is not good enough.
        status = 403 if failure.status == 401 else failure.status
        return JSONResponse({member: failure.details}, status)

    return write
