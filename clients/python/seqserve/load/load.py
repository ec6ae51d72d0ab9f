"""A load: what is sent and when, by one process or by several."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from seqserve.load.answer import Answer, Caller
from seqserve.load.arrivals import Arrival, draw_for, random_arrivals, traced_arrivals, within
from seqserve.load.loops import closed_loop, open_loop

_WARM_UPS_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Which requests are sent. Equal loads send the same, in as many processes as may be."""

    sources: Sequence[str]
    """Texts to draw from."""
    rate_per_s: float | None = None
    """Mean arrivals in a second; None for a closed loop, or if there is a trace."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps; 1 is a Poisson process."""
    trace_s: Sequence[float] | None = None
    """When requests arrive, in place of a rate."""
    in_flight: int | None = None
    """Most requests under way; in a closed loop, how many always are."""
    requests: int | None = None
    """Most requests; None for no limit."""
    seconds: float | None = None
    """How long requests are sent; None for no limit."""
    timeout_s: float = 30.0
    """How long after a request is due its caller gives up."""
    warm_ups: int = 0
    """Requests before, which are not measured."""
    seed: int = 0
    """Of arrivals and texts."""

    @property
    def is_closed(self) -> bool:
        """Whether a request is sent when another one is answered, not at its own time."""
        no_time = self.rate_per_s is None or math.isinf(self.rate_per_s)
        return self.trace_s is None and no_time and self.in_flight is not None

    @property
    def total(self) -> int | None:
        """How many requests there will be; None if the time tells."""
        if self.seconds is not None:
            return None
        counts = (self.requests, None if self.trace_s is None else len(self.trace_s))
        return min((count for count in counts if count is not None), default=None)

    def arrivals(self) -> Iterator[Arrival]:
        """Returns the arrivals of an open loop, of all processes."""
        arrivals = (
            random_arrivals(self.rate_per_s or math.inf, self.sources, self.seed, self.burstiness)
            if self.trace_s is None
            else traced_arrivals(self.trace_s, self.sources, self.seed)
        )
        return within(arrivals, seconds=self.seconds, count=self.requests)

    async def warm_up(self, caller: Caller, share: Share) -> None:
        """Sends what is not measured: connections, allocations and compilations of a first use."""
        warm_ups = share.of(self.warm_ups)
        if warm_ups:
            sources = draw_for(self.sources, None, f"{self.seed} warm-up", warm_ups)
            await closed_loop(caller, sources, min(warm_ups, _WARM_UPS_AT_ONCE), self.timeout_s)

    async def send(
        self,
        caller: Caller,
        share: Share,
        began_s: float,
        answered: Callable[[Answer], None],
    ) -> list[Answer]:
        """Sends what falls to one process.

        Args:
            caller: Whom to call.
            share: The process.
            began_s: When the load begins, on the clock of :func:`time.perf_counter`, which all
                processes of a machine share.
            answered: Called after each request.
        """
        if not self.is_closed:
            return await open_loop(
                caller,
                islice(self.arrivals(), share.index, None, share.processes),
                self.timeout_s,
                in_flight=None if self.in_flight is None else share.of(self.in_flight),
                began_s=began_s,
                answered=answered,
            )
        await asyncio.sleep(max(0.0, began_s - time.perf_counter()))
        requests = None if self.requests is None else share.of(self.requests)
        sources = draw_for(self.sources, self.seconds, f"{self.seed} {share.index}", requests)
        places = share.of(self.in_flight or 1)
        return await closed_loop(
            caller, sources, places, self.timeout_s, began_s=began_s, answered=answered
        )


@dataclass(frozen=True, slots=True)
class Share:
    """One of several processes that send a load together."""

    index: int = 0
    processes: int = 1

    def of(self, count: int) -> int:
        """Returns its part of a number; the first processes have one more if there is a rest."""
        return count // self.processes + (self.index < count % self.processes)
