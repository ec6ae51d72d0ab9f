"""What monitoring asks: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from seqserve import AsyncClient
from seqserve.errors import CallError, DeadlineExceeded, Unavailable
from seqserve_gateway.form import Gateway

_TIMEOUT_S = 2.0
_KEPT_S = 1.0


class Readiness:
    """Whether the server answers; asks it at most once a second, whoever wants to know."""

    def __init__(self, client: AsyncClient, clock: Callable[[], float] = time.monotonic) -> None:
        """Knows nothing yet."""
        self._client, self._clock = client, clock
        self._lock = asyncio.Lock()
        self._is_ready, self._until_s = False, -1.0

    async def check(self) -> bool:
        """Returns what is known, or asks the server."""
        async with self._lock:
            if self._clock() >= self._until_s:
                self._is_ready = await self._answers()
                self._until_s = self._clock() + _KEPT_S
        return self._is_ready

    async def _answers(self) -> bool:
        try:
            await self._client.models(timeout_s=_TIMEOUT_S)
        except (Unavailable, DeadlineExceeded):
            return False
        except CallError:
            # That it refuses a call without a token is an answer too.
            return True
        return True


def probes_of(gateway: Gateway) -> list[Route]:
    """Makes the routes; none of them takes a place among the calls."""
    readiness = Readiness(gateway.upstream.client)
    gateway.metrics.in_progress.set_function(lambda: gateway.admission.under_way)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readyz(request: Request) -> Response:
        if gateway.admission.is_open and await readiness.check():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", 503)

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", gateway.metrics.scrape),
    ]
