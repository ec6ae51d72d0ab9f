"""More calls than a server can answer, from several callers at once, and what becomes of them."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import grpc

from seqserve.v1 import generation_pb2, generation_pb2_grpc

CALLER = "x-caller"
"""The metadata in which calls say whose they are."""

_PATIENCE_S = 30.0


@dataclass(slots=True)
class Outcomes:
    """What became of the calls of one caller."""

    sent: int = 0
    durations_s: list[float] = field(default_factory=list)
    """Of those that were answered."""
    codes: dict[str, int] = field(default_factory=dict)
    """Of the others."""

    @property
    def answered(self) -> int:
        return len(self.durations_s)

    def __add__(self, other: Outcomes) -> Outcomes:
        codes = dict(self.codes)
        for code, count in other.codes.items():
            codes[code] = codes.get(code, 0) + count
        return Outcomes(self.sent + other.sent, self.durations_s + other.durations_s, codes)


def quantile(durations_s: list[float], share: float) -> float:
    """Gives the duration that so many calls do not exceed."""
    return sorted(durations_s)[min(int(share * len(durations_s)), len(durations_s) - 1)]


class Load:
    """Callers of one server, each over a connection of its own."""

    def __init__(self, target: str, sources: list[str], **options: int) -> None:
        """Takes where to call and what to ask.

        Args:
            target: Host and port.
            sources: Texts, one of which each call has.
            options: How to decode; a length is asked for from a half of it on.
        """
        self._target = target
        self._requests = []
        for number, source in enumerate(sources):
            request = generation_pb2.GenerateRequest(source=source)
            # Else all that begins together ends together too.
            share = 0.5 + 0.5 * (number + 1) / len(sources)
            for name, value in options.items():
                is_length = name.endswith("_length")
                setattr(request.options, name, int(share * value) if is_length else value)
            self._requests.append(request)
        self._random = random.Random(7)
        self._connections: dict[str, tuple[Any, Any]] = {}

    async def __aenter__(self) -> Load:
        return self

    async def __aexit__(self, *given: object) -> None:
        for channel, _ in self._connections.values():
            await channel.close(grace=None)

    def connection(self, caller: str) -> tuple[Any, Any]:
        """Gives the channel of a caller, and the stub for it."""
        if caller not in self._connections:
            # Else channels with the same target share a connection.
            own = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.aio.insecure_channel(self._target, options=own)
            self._connections[caller] = (
                channel,
                generation_pb2_grpc.GenerationServiceStub(channel),
            )
        return self._connections[caller]

    async def call(self, caller: str, outcomes: Outcomes) -> None:
        """Sends one request and notes what becomes of it."""
        outcomes.sent += 1
        request = self._random.choice(self._requests)
        _, generation = self.connection(caller)
        began_s = time.perf_counter()
        try:
            await generation.Generate(request, timeout=_PATIENCE_S, metadata=((CALLER, caller),))
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            outcomes.codes[code] = outcomes.codes.get(code, 0) + 1
        else:
            outcomes.durations_s.append(time.perf_counter() - began_s)

    async def closed(self, callers: int, seconds: float) -> Outcomes:
        """Lets so many callers each send a request as soon as the one before is answered."""
        outcomes, end_s = Outcomes(), time.perf_counter() + seconds

        async def caller(name: str) -> None:
            while time.perf_counter() < end_s:
                await self.call(name, outcomes)

        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(caller(f"closed-{number}"))
        return outcomes

    async def open(self, rate: float, seconds: float, caller: str) -> Outcomes:
        """Sends requests at random times, whatever becomes of those before: a Poisson process.

        Args:
            rate: Requests a second.
            seconds: How long.
            caller: Whose they are.
        """
        outcomes, due_s = Outcomes(), time.perf_counter()
        end_s = due_s + seconds
        async with asyncio.TaskGroup() as group:
            while (due_s := due_s + self._random.expovariate(rate)) < end_s:
                # One that is behind sends all that is due, and so keeps the rate.
                if (early_s := due_s - time.perf_counter()) > 0:
                    await asyncio.sleep(early_s)
                group.create_task(self.call(caller, outcomes))
        return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """What was measured."""

    capacity: float
    """Answers a second, of callers who wait for each."""
    calm: Outcomes
    """At 0.8 times so many requests."""
    loud: Outcomes
    """Of the caller who sends far more than can be answered."""
    quiet: list[Outcomes]
    """Of those who send a little beside it."""
    seconds: float

    @property
    def goodput(self) -> float:
        """Answers a second in the flood, as a part of the capacity."""
        return self.flooded.answered / self.seconds / self.capacity

    @property
    def flooded(self) -> Outcomes:
        """Of all callers in the flood."""
        return sum(self.quiet, self.loud)

    @property
    def slowdown(self) -> float:
        """How many times as long the slowest of a hundred took in the flood as in the calm."""
        return quantile(self.flooded.durations_s, 0.99) / quantile(self.calm.durations_s, 0.99)

    @property
    def served(self) -> float:
        """Part of the calls of quiet callers that were answered."""
        return sum(each.answered for each in self.quiet) / sum(each.sent for each in self.quiet)

    def __str__(self) -> str:
        calm, flooded = self.calm.durations_s, self.flooded.durations_s
        return (
            f"capacity {self.capacity:.1f}/s; at 0.8 of it p50 {quantile(calm, 0.5) * 1e3:.0f} ms,"
            f" p99 {quantile(calm, 0.99) * 1e3:.0f} ms, others {self.calm.codes}; in the flood of"
            f" {self.flooded.sent / self.seconds:.0f}/s p50 {quantile(flooded, 0.5) * 1e3:.0f} ms,"
            f" p99 {quantile(flooded, 0.99) * 1e3:.0f} ms, goodput {self.goodput:.2f}, quiet"
            f" callers served {self.served:.4f}, others {self.flooded.codes}"
        )


async def flood(load: Load, *, slots: int, seconds: float, times: float) -> Flood:
    """Measures the capacity, then a calm, then a flood.

    Args:
        load: Who calls.
        slots: Of the server.
        seconds: How long the flood lasts; a third of it each of the others.
        times: How many times the capacity is asked for.
    """
    await load.closed(slots, seconds / 12)
    # A few wait, so that no slot does.
    capacity = (await load.closed(slots + slots // 4, seconds / 3)).answered / (seconds / 3)
    calm = await load.open(0.8 * capacity, seconds / 3, "calm")
    quiet_rate = 0.05 * capacity
    async with asyncio.TaskGroup() as group:
        loud = group.create_task(load.open((times - 0.2) * capacity, seconds, "loud"))
        quiet = [
            group.create_task(load.open(quiet_rate, seconds, f"quiet-{number}"))
            for number in range(4)
        ]
    return Flood(
        capacity=capacity,
        calm=calm,
        loud=loud.result(),
        quiet=[each.result() for each in quiet],
        seconds=seconds,
    )
