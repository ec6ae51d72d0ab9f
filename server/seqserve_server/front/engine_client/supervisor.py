"""Starts a process again when it has failed; a circuit breaker says when, and when to trust it.

::

              failed, for the third time in a row          started
    CLOSED ──────────────────────────────────────▶ OPEN ────────────▶ HALF_OPEN
      ▲                                              ▲    failed          │
      │                                              └────────────────────┤
      └───────────────────────────────────────────────────────────────────┘
                                  it ran for trial_s

A failure is the end of a process, or a start that did not succeed. Pauses between starts double
with each failure in a row; a process that ran for ``forget_s`` ends the row.
Source: M. T. Nygard, Release It!, 2nd edition, 2018, "Circuit Breaker".
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from seqserve.errors import SeqserveError
from seqserve_server.process import logs

# More doublings than this leave the range of floats.
_MAX_DOUBLINGS = 64


@dataclass(slots=True, kw_only=True)
class CircuitBreaker:
    """Counts the failures of one engine; times are in seconds."""

    threshold: int = 3
    """Failures in a row that open it."""
    first_pause_s: float = 0.5
    """Pause before the second start in a row; the first follows at once."""
    max_pause_s: float = 30.0
    trial_s: float = 5.0
    """Time that an engine on trial must run to be trusted."""
    forget_s: float = 300.0
    """Time that an engine must run for its failures to be forgotten."""
    clock: Callable[[], float] = time.monotonic
    failures: int = 0
    """Failures in a row."""
    _started_s: float | None = None

    def started(self) -> None:
        """Notes that a process serves."""
        self._started_s = self.clock()

    def failed(self) -> None:
        """Counts the end of a process, or a start that did not succeed."""
        if self._ran_s() >= self.forget_s:
            self.failures = 0
        self.failures += 1
        self._started_s = None

    @property
    def is_closed(self) -> bool:
        """Whether the engine is trusted."""
        return self.failures < self.threshold or (self.runs and not self.trial_left_s)

    @property
    def runs(self) -> bool:
        """Whether the engine serves; on trial, unless the breaker is closed."""
        return self._started_s is not None

    @property
    def pause_s(self) -> float:
        """Time to wait before the next start."""
        if self.failures < 2:
            return 0.0
        doublings = min(self.failures - 2, _MAX_DOUBLINGS)
        return min(self.first_pause_s * 2.0**doublings, self.max_pause_s)

    @property
    def trial_left_s(self) -> float:
        """Time that the engine must go on running to be trusted, if it is on trial."""
        return max(0.0, self.trial_s - self._ran_s())

    def _ran_s(self) -> float:
        return 0.0 if self._started_s is None else self.clock() - self._started_s


class Startable(Protocol):
    """An engine that can be started again."""

    def terminate(self) -> None:
        """Ends what is left of it; blocks."""

    def load(self) -> None:
        """Starts its process and waits until it is ready; blocks."""

    async def start(self) -> None:
        """Connects a process that is ready."""


class Supervisor:
    """Restarts one engine; lives in the event loop."""

    def __init__(
        self,
        label: str,
        engine: Startable,
        breaker: CircuitBreaker,
        names: tuple[str, str] = ("engine", "model"),
    ) -> None:
        """Does nothing before the process fails, which the log calls by ``names``."""
        self._noun, key = names
        self._facts = {key: label}
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
        return self._breaker.is_closed

    @property
    def last_error(self) -> str:
        """Why an engine is not trusted, or does not run."""
        failures = self._breaker.failures
        how_often = f"has failed {failures} times in a row" if failures > 1 else "has failed"
        is_on_trial = self._breaker.runs and not self._breaker.is_closed
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
        failed_s = time.monotonic()
        while not await self._try():
            self._breaker.failed()
            self.on_change()
        seconds = time.monotonic() - failed_s
        fields = {**self._facts, "restart": self.restarts, "seconds": seconds}
        logs.event(f"{self._noun} has started again", fields)
        self.on_change()
        if self.is_trusted:
            return
        while not self.is_trusted:
            await asyncio.sleep(self._breaker.trial_left_s)
        logs.event(f"{self._noun} has survived its trial", self._facts)
        self.on_change()

    async def _try(self) -> bool:
        # Remains of the engine.
        await asyncio.to_thread(self._engine.terminate)
        await asyncio.sleep(self._breaker.pause_s)
        self.restarts += 1
        try:
            await asyncio.to_thread(self._engine.load)
            await self._engine.start()
        except (SeqserveError, OSError) as error:
            fields = {**self._facts, "restart": self.restarts, "reason": str(error)}
            logs.event(f"{self._noun} could not be started again", fields, logging.ERROR)
            return False
        return True
