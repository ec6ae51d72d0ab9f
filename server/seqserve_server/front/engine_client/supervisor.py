"""Starts an engine again when it has failed; a circuit breaker says when, and when to trust it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from seqserve.errors import SeqserveError
from seqserve_server.front.engine_client.circuit_breaker import BreakerState, CircuitBreaker
from seqserve_server.process import logs


class Startable(Protocol):
    """An engine that can be started again."""

    def terminate(self) -> None:
        """Ends what is left of it; blocks."""

    def load(self) -> None:
        """Starts its process and waits until it is ready; blocks.

        Raises:
            SeqserveError: The model cannot be loaded.
            OSError: The system has no process for it.
        """

    async def start(self) -> None:
        """Connects a process that is ready."""


class Supervisor:
    """Restarts one engine; lives in the event loop."""

    def __init__(self, label: str, engine: Startable, breaker: CircuitBreaker) -> None:
        """Does nothing before the engine fails.

        Args:
            label: Model and version, for the log: ``en-de/1``.
            engine: The engine.
            breaker: Decides about pauses and trials.
        """
        self._label = label
        self._engine = engine
        self._breaker = breaker
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0
        """Starts after the first one, whether or not they succeeded."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the engine has failed, has started again, or is trusted again."""

    @property
    def is_trusted(self) -> bool:
        """Whether an engine that runs may get calls for which there are other versions."""
        return self._breaker.state is BreakerState.CLOSED

    @property
    def last_error(self) -> str:
        """What has happened to an engine that is not trusted, or does not run."""
        failures = self._breaker.failures
        how_often = f"has failed {failures} times in a row" if failures > 1 else "has failed"
        is_on_trial = self._breaker.state is BreakerState.HALF_OPEN
        return f"its engine {how_often} and is {'on trial' if is_on_trial else 'started again'}"

    def started(self) -> None:
        """Notes that the engine serves."""
        self._breaker.started()

    def failed(self) -> None:
        """Notes that the engine has failed, and starts it again."""
        self.stop()
        self._breaker.failed()
        self.on_change()
        self._task = asyncio.create_task(self._restart())

    def stop(self) -> None:
        """Starts the engine no more."""
        if self._task is not None:
            self._task.cancel()

    async def _restart(self) -> None:
        """Starts the engine until it serves, and waits for the end of its trial."""
        failed_s = time.monotonic()
        while not await self._try():
            self._breaker.failed()
            self.on_change()
        seconds = time.monotonic() - failed_s
        fields = {"model": self._label, "restart": self.restarts, "seconds": seconds}
        logs.event("engine has started again", fields)
        self.on_change()
        if not self.is_trusted:
            await self._end_trial()

    async def _try(self) -> bool:
        """Ends what is left of the engine and starts it; returns whether that succeeded."""
        await asyncio.to_thread(self._engine.terminate)
        await asyncio.sleep(self._breaker.pause_s)
        self.restarts += 1
        try:
            await asyncio.to_thread(self._engine.load)
            await self._engine.start()
        except (SeqserveError, OSError) as error:
            fields = {"model": self._label, "restart": self.restarts, "reason": str(error)}
            logs.event("engine could not be started again", fields, logging.ERROR)
            return False
        return True

    async def _end_trial(self) -> None:
        while not self.is_trusted:
            await asyncio.sleep(self._breaker.trial_left_s)
        logs.event("engine has survived its trial", {"model": self._label})
        self.on_change()
