"""Load generators over gRPC: open loop, and closed loop with a fixed number in flight."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc

from bench.load.latency import Answer
from seqserve.v1 import generation_pb2, generation_pb2_grpc

MAX_DECODING_LENGTH = 64
"""Most target tokens of every request."""

# Servers are on this machine; a proxy does not know the way.
_CHANNEL = (("grpc.enable_http_proxy", 0),)
# Only a server that hangs answers later.
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come."""

    due_s: float
    """Seconds from the beginning."""
    source: str


def poisson(
    rate_per_s: float, seconds: float, sources: Sequence[str], seed: int | str
) -> list[Arrival]:
    """Draws the arrivals of a Poisson process, which does not wait for answers.

    The same arguments return the same arrivals, so that every server gets the same load.

    Args:
        rate_per_s: Mean arrivals in a second.
        seconds: No arrival is due later.
        sources: Texts to draw from.
        seed: Of the random numbers.
    """
    draw = random.Random(seed)
    arrivals: list[Arrival] = []
    due_s = draw.expovariate(rate_per_s)
    while due_s < seconds:
        arrivals.append(Arrival(due_s, draw.choice(sources)))
        due_s += draw.expovariate(rate_per_s)
    return arrivals


class Caller:
    """Calls one server over one channel, for answers at once or streamed."""

    def __init__(self, address: str, *, streamed: bool = False) -> None:
        """Takes where to call; connects when it is entered.

        Args:
            address: Host and port.
            streamed: Whether to call GenerateStream.
        """
        self._address = address
        self._streamed = streamed

    async def __aenter__(self) -> Caller:
        """Connects."""
        self._channel = grpc.aio.insecure_channel(self._address, options=_CHANNEL)
        self._stub: Any = generation_pb2_grpc.GenerationServiceStub(self._channel)
        await self._channel.channel_ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the channel."""
        await self._channel.close(grace=None)

    async def call(
        self, source: str, began_s: float, due_s: float, timeout_s: float = _PATIENCE_S
    ) -> Answer:
        """Sends one request and waits for its end.

        Args:
            source: The text.
            began_s: Beginning of the run, on the clock of :func:`time.perf_counter`.
            due_s: When the request is due, from there.
            timeout_s: How long after that the caller gives up.
        """
        request = generation_pb2.GenerateRequest(source=source)
        request.options.max_decoding_length = MAX_DECODING_LENGTH
        # The other engines compute none either.
        request.options.return_scores = False
        at_s = began_s + due_s
        sent_s = time.perf_counter() - at_s
        send = self._stream if self._streamed else self._unary
        try:
            first_at_s, response = await send(request, max(0.0, timeout_s - sent_s))
        except grpc.aio.AioRpcError as error:
            return Answer(due_s=due_s, sent_s=sent_s, error=error.code().name)
        return Answer(
            due_s=due_s,
            sent_s=sent_s,
            first_s=first_at_s - at_s,
            total_s=time.perf_counter() - at_s,
            tokens=response.generated_tokens,
        )

    async def _unary(self, request: Any, timeout_s: float) -> tuple[float, Any]:
        response = await self._stub.Generate(request, timeout=timeout_s)
        return time.perf_counter(), response

    async def _stream(self, request: Any, timeout_s: float) -> tuple[float, Any]:
        first_at_s = 0.0
        response = None
        async for message in self._stub.GenerateStream(request, timeout=timeout_s):
            first_at_s = first_at_s or time.perf_counter()
            response = message.result
        assert response is not None, "a stream that goes well has a last message"
        return first_at_s, response


async def open_loop(caller: Caller, arrivals: Sequence[Arrival], timeout_s: float) -> list[Answer]:
    """Sends every request when it is due, whatever is still unanswered.

    Args:
        caller: Whom to call.
        arrivals: When and what; not none.
        timeout_s: How long after a request is due its caller gives up.
    """
    gc.collect()
    began_s = time.perf_counter()
    calls: list[asyncio.Task[Answer]] = []
    async with asyncio.TaskGroup() as group:
        for arrival in arrivals:
            ahead_s = began_s + arrival.due_s - time.perf_counter()
            await asyncio.sleep(max(0.0, ahead_s))
            call = caller.call(arrival.source, began_s, arrival.due_s, timeout_s)
            calls.append(group.create_task(call))
    # A batch without waiting callers still runs, and must not slow the next run.
    await caller.call(arrivals[-1].source, time.perf_counter(), 0.0)
    return [call.result() for call in calls]


async def closed_loop(caller: Caller, sources: Iterable[str], in_flight: int) -> list[Answer]:
    """Keeps a number of requests under way until the sources are used up."""
    gc.collect()
    began_s = time.perf_counter()
    waiting = iter(sources)
    answers: list[Answer] = []

    async def one_after_the_other() -> None:
        for source in waiting:
            answers.append(await caller.call(source, began_s, time.perf_counter() - began_s))

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_the_other())
    return answers


def check_answers(answers: Iterable[Answer]) -> None:
    """Refuses a closed loop in which a call failed: no load is more than a server can bear.

    Raises:
        SystemExit: A call failed.
    """
    if errors := {answer.error for answer in answers if answer.error}:
        raise SystemExit(f"calls failed: {', '.join(sorted(errors))}")


def draw_for(sources: Sequence[str], seconds: float, seed: int) -> Iterator[str]:
    """Draws sources at random, the same for the same seed, until the time is over."""
    draw = random.Random(seed)
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        yield draw.choice(sources)
