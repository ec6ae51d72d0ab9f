"""Lets requests that are equal wait for the one of them that is under way.

Source: the package singleflight of Go, https://pkg.go.dev/golang.org/x/sync/singleflight. Unlike
there, the end of one request by itself, such as a cancel, is not the end of those that wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from seqserve_server.contract.errors import DeadlinePassed, QueueFull, ServiceError

Answer = TypeVar("Answer")

# They depend on the deadline and the turn of a request; an equal one may be answered.
_ITS_OWN = (DeadlinePassed, QueueFull)


class Flights(Generic[Answer]):
    """The requests under way, by their keys."""

    def __init__(self) -> None:
        """Starts with none."""
        self._flights: dict[Hashable, asyncio.Future[Answer | ServiceError | None]] = {}

    async def join(self, key: Hashable) -> Answer | None:
        """Waits for the answer of an equal request; None if none is under way any more.

        The caller then runs its own, without waiting for anything before it calls :meth:`run`.

        Raises:
            ServiceError: The other one failed, as this one would have.
        """
        while (flight := self._flights.get(key)) is not None:
            # Whoever is cancelled leaves the others waiting.
            outcome = await asyncio.shield(flight)
            if isinstance(outcome, ServiceError):
                raise outcome
            if outcome is not None:
                return outcome
        return None

    async def run(self, key: Hashable, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Runs a request, whose answer goes to those that join it meanwhile.

        Raises:
            ServiceError: It failed.
        """
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        outcome: Answer | ServiceError | None = None
        try:
            outcome = await work()
        except ServiceError as error:
            outcome = None if isinstance(error, _ITS_OWN) else error
            raise
        finally:
            del self._flights[key]
            flight.set_result(outcome)
        return outcome
