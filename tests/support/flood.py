"""Load from several clients, up to more than the server can answer, and its measurements."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import grpc

from seqserve.v1 import generation_pb2, generation_pb2_grpc

CALLER = "x-caller"
"""The metadata key that identifies the client."""

_PATIENCE_S = 120.0


@dataclass(slots=True)
class Outcomes:
    sent: int = 0
    durations_s: list[float] = field(default_factory=list)
    """Durations of the answered calls."""
    codes: Counter[str] = field(default_factory=Counter)
    """Status codes of the other calls."""

    @property
    def answered(self) -> int:
        return len(self.durations_s)

    def __add__(self, other: Outcomes) -> Outcomes:
        durations_s = self.durations_s + other.durations_s
        return Outcomes(self.sent + other.sent, durations_s, self.codes + other.codes)


def quantile(durations_s: list[float], share: float) -> float:
    return sorted(durations_s)[min(int(share * len(durations_s)), len(durations_s) - 1)]


class Load:
    """Clients of one server, each with its own connection."""

    def __init__(self, target: str, sources: list[str], **options: int) -> None:
        """Prepares one request for each source.

        Args:
            target: Host and port.
            sources: Texts; each call sends one of them.
            options: Decoding options; lengths vary from half of the value to the value.
        """
        self._target = target
        self._requests = []
        for number, source in enumerate(sources):
            request = generation_pb2.GenerateRequest(source=source)
            # Otherwise requests that begin together also end together.
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
        if caller not in self._connections:
            # Otherwise channels with the same target share a connection.
            own = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.aio.insecure_channel(self._target, options=own)
            stub = generation_pb2_grpc.GenerationServiceStub(channel)
            self._connections[caller] = channel, stub
        return self._connections[caller]

    async def call(self, caller: str, outcomes: Outcomes) -> None:
        outcomes.sent += 1
        request = self._random.choice(self._requests)
        _, generation = self.connection(caller)
        began_s = time.perf_counter()
        try:
            await generation.Generate(request, timeout=_PATIENCE_S, metadata=((CALLER, caller),))
        except grpc.aio.AioRpcError as error:
            outcomes.codes[error.code().name] += 1
        else:
            outcomes.durations_s.append(time.perf_counter() - began_s)

    async def closed(self, callers: int, seconds: float) -> Outcomes:
        """Runs a closed loop: each client sends a request as soon as its last one is answered."""
        outcomes, end_s = Outcomes(), time.perf_counter() + seconds

        async def caller(name: str) -> None:
            while time.perf_counter() < end_s:
                await self.call(name, outcomes)

        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(caller(f"closed-{number}"))
        return outcomes

    async def open(self, rate: float, seconds: float, caller: str) -> Outcomes:
        """Runs an open loop: sends requests at the random times of a Poisson process.

        Args:
            rate: Requests per second.
            seconds: Duration.
            caller: Name of the client.
        """
        outcomes, due_s = Outcomes(), time.perf_counter()
        end_s = due_s + seconds
        async with asyncio.TaskGroup() as group:
            while (due_s := due_s + self._random.expovariate(rate)) < end_s:
                # A sender that is late sends all due requests at once, to keep the rate.
                if (early_s := due_s - time.perf_counter()) > 0:
                    await asyncio.sleep(early_s)
                group.create_task(self.call(caller, outcomes))
        return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    capacity: float
    """Answers per second in a closed loop."""
    calm: Outcomes
    """Outcomes at 0.8 of the capacity."""
    loud: Outcomes
    """Outcomes of the client that floods."""
    quiet: list[Outcomes]
    """Outcomes of the quiet clients beside it."""
    seconds: float

    @property
    def goodput(self) -> float:
        """Answers per second during the flood, relative to the capacity."""
        return self.flooded.answered / self.seconds / self.capacity

    @property
    def flooded(self) -> Outcomes:
        """Outcomes of all clients during the flood."""
        return sum(self.quiet, self.loud)

    @property
    def slowdown(self) -> float:
        """p99 latency during the flood, relative to that at 0.8 of the capacity."""
        return quantile(self.flooded.durations_s, 0.99) / quantile(self.calm.durations_s, 0.99)

    @property
    def served(self) -> float:
        """Share of the quiet clients' calls that were answered."""
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
    """Measures the capacity, then a calm phase, then a flood.

    Args:
        load: Clients and requests.
        slots: Slots of the server.
        seconds: Duration of the flood; the other phases take a third of it.
        times: Request rate of the flood, relative to the capacity.
    """
    await load.closed(slots, seconds / 12)
    # A few requests wait, so that no slot is idle.
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
