"""A load: what is sent and when, and the processes that send it."""

import asyncio
import math
import multiprocessing
import multiprocessing.connection
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any

from seqserve.errors import SeqserveError
from seqserve.load import Answer, Caller
from seqserve.load.arrivals import Arrival, draw_for, random_arrivals, traced_arrivals, within
from seqserve.load.loops import closed_loop, open_loop, precise_loop
from seqserve.processes import Share, leave_interrupts, spawn

_WARM_UPS_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests to send. Equal loads send the same requests, in any number of processes."""

    sources: Sequence[str]
    """Texts to draw from."""
    rate_per_s: float | None = None
    """Mean arrivals in a second; None for a closed loop, or if there is a trace."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps; 1 is a Poisson process."""
    trace_s: Sequence[float] | None = None
    """Times at which requests arrive, instead of a rate."""
    in_flight: int | None = None
    """Maximum of requests in flight; in a closed loop, their number."""
    requests: int | None = None
    """Most requests; None for no limit."""
    seconds: float | None = None
    """How long requests are sent; None for no limit."""
    timeout_s: float = 30.0
    """How long after a request is due its caller gives up."""
    warm_ups: int = 0
    """Requests before, which are not measured."""
    seed: int = 0
    """Seed of arrivals and texts."""

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
        self, caller: Caller, share: Share, began_s: float, answered: Callable[[Answer], None]
    ) -> list[Answer]:
        """Sends what falls to one process."""
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


# Until all processes have read when they begin.
_HEAD_START_S = 0.1
_REPORT_S = 0.2


@dataclass(frozen=True, slots=True)
class Sent:
    """All that was sent, in the order in which it was due."""

    answers: list[Answer]
    cpu_s: float
    """CPU time of the generator."""
    cpu_share: float
    """CPU seconds a second of its busiest process, which cannot have more than one."""


def send(load: Load, caller: Caller, processes: int, answered: Callable[[int], None]) -> Sent:
    """Sends a load, and waits for the end of all its requests."""
    if processes == 1:
        return _total([_run_share(load, caller, Share(), time.perf_counter, lambda _: answered(1))])
    children: list[tuple[Any, Connection]] = []
    try:
        for index in range(processes):
            here, there = multiprocessing.Pipe()
            child = spawn(_child, there, load, caller, Share(index, processes))
            there.close()
            children.append((child, here))
        pipes = [pipe for _, pipe in children]
        for pipe in pipes:
            _received(pipe)
        began_s = time.perf_counter() + _HEAD_START_S
        for pipe in pipes:
            pipe.send(began_s)
        return _total(_collected(pipes, answered))
    finally:
        for child, pipe in children:
            pipe.close()
            child.terminate()
            child.join()


def _collected(pipes: list[Connection], answered: Callable[[int], None]) -> list[Sent]:
    parts: list[Sent] = []
    at_work: set[Any] = {*pipes}
    while at_work:
        for pipe in multiprocessing.connection.wait(at_work):
            message = _received(pipe)
            if isinstance(message, int):
                answered(message)
            else:
                parts.append(message)
                at_work.remove(pipe)
    return parts


def _received(pipe: Any) -> Any:
    try:
        message = pipe.recv()
    except (EOFError, OSError):
        raise SeqserveError("a process of the load has ended before its load") from None
    if isinstance(message, SeqserveError):
        raise message
    return message


def _child(pipe: Connection, load: Load, caller: Caller, share: Share) -> None:
    leave_interrupts()
    count, next_s = 0, 0.0

    def begin() -> float:
        pipe.send(0)
        began_s: float = pipe.recv()
        return began_s

    def answered(_: Answer) -> None:
        nonlocal count, next_s
        count += 1
        if time.perf_counter() >= next_s:
            pipe.send(count)
            count, next_s = 0, time.perf_counter() + _REPORT_S

    try:
        sent = _run_share(load, caller, share, begin, answered)
        pipe.send(count)
        pipe.send(sent)
    except SeqserveError as error:
        pipe.send(error)
    except (BrokenPipeError, EOFError):
        # Nobody waits for it.
        pass


def _run_share(
    load: Load,
    caller: Caller,
    share: Share,
    begin: Callable[[], float],
    answered: Callable[[Answer], None],
) -> Sent:
    # Not the result of the task, which a runner turns into text when it looks at its interrupts.
    sent: list[Sent] = []

    async def run() -> None:
        async with caller:
            await load.warm_up(caller, share)
            began_s = begin()
            at_s, cpu_s = time.perf_counter(), time.process_time()
            answers = await load.send(caller, share, began_s, answered)
            wall_s, cpu_s = time.perf_counter() - at_s, time.process_time() - cpu_s
        sent.append(Sent(answers, cpu_s, cpu_s / wall_s))

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(run())
    return sent[0]


def _total(parts: list[Sent]) -> Sent:
    answers = sorted(chain.from_iterable(part.answers for part in parts), key=attrgetter("due_s"))
    return Sent(answers, sum(part.cpu_s for part in parts), max(part.cpu_share for part in parts))
