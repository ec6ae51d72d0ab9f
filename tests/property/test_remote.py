"""Each request gets its own answer or one error, whatever callers and engine processes do."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.server.engine.fake_runtime import EOS, FakeRuntime, expected
from tests.unit.server.front.engine_client.thread_host import ThreadHost

from seqserve_server.contract.errors import ModelUnavailable, QueueFull
from seqserve_server.contract.events import Event, Failed, Finished, Progress, StopReason, Timeline
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.group import LaunchedGroup

PATIENCE_S = 60.0
LIMITS = EngineLimits(workers=2, slots=4, max_queue=6, max_source_tokens_per_step=20)


sources = st.lists(st.integers(4, 40), max_size=6)
arrivals = st.tuples(st.just("arrive"), sources, st.integers(1, 10), st.booleans())
# The caller of a number leaves; the statistics are read some times, while the engine goes on; an
# engine process dies, the newest one or one before it.
actions = st.one_of(
    arrivals,
    arrivals,
    st.tuples(st.just("leave"), st.integers(0, 12)),
    st.tuples(st.just("scrape"), st.integers(1, 9)),
    st.tuples(st.just("break_down"), st.integers(0, 2)),
)


@dataclass(eq=False)
class Caller:
    spec: GenerateSpec
    request_id: int = 0
    events: list[Event] = field(default_factory=list)
    refused: bool = False
    left: bool = False

    def receive(self, event: Event, timeline: Timeline | None) -> None:
        assert not self.left, "an event came after it was cancelled"
        assert not self.has_ended, "an event came after the last one"
        self.events.append(event)

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and not isinstance(self.events[-1], Progress)

    @property
    def is_over(self) -> bool:
        return self.refused or self.left or self.has_ended

    def check(self) -> None:
        if self.refused:
            assert self.events == []
        elif not self.left:
            *progress, last = self.events
            tokens = [token for event in progress for token in event.token_ids]  # type: ignore[union-attr]
            if isinstance(last, Finished):
                assert last == expected(self.spec.source, self.spec.options)
                # The answer brings its last one itself.
                before = last.best.token_ids[
                    : None if last.best.stop_reason is StopReason.EOS else -1
                ]
                assert tokens == (before if self.spec.streamed else [])
            else:
                assert isinstance(last, Failed)
                assert isinstance(last.error, (ModelUnavailable, QueueFull))


class Scenario:
    """Callers of the engines of one model, whose processes may die."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self.hosts: list[ThreadHost] = []
        self.callers: list[Caller] = []

    async def run(self, plan: list[tuple[Any, ...]]) -> None:
        self.engine = engine = LaunchedGroup([self._launch] * self._processes, label="m/1")
        await asyncio.to_thread(engine.load)
        await engine.start()
        for name, *arguments in plan:
            await getattr(self, name)(*arguments)
        # Times out if a request is lost.
        async with asyncio.timeout(PATIENCE_S):
            while not all(caller.is_over for caller in self.callers):
                await asyncio.sleep(0.001)
            while not engine.status.is_up:
                await asyncio.sleep(0.001)
            while (reply := await engine.newest_stats()).slots_in_use:
                # Cancelled rows leave before the next step.
                await asyncio.sleep(0.001)
        assert reply.queue_depth == 0
        await engine.stop()

    def _launch(self) -> ThreadHost:
        self.hosts.append(ThreadHost(FakeRuntime(), LIMITS))
        return self.hosts[-1]

    async def arrive(self, source: list[int], length: int, streamed: bool) -> None:
        options = DecodingOptions(max_decoding_length=length)
        caller = Caller(GenerateSpec(source=[*source, EOS], options=options, streamed=streamed))
        self.callers.append(caller)
        try:
            caller.request_id = self.engine.submit(caller.spec, caller.receive)
        except ModelUnavailable:
            caller.refused = True

    async def leave(self, number: int) -> None:
        if number < len(self.callers):
            caller = self.callers[number]
            self.engine.cancel(caller.request_id)
            caller.left = caller.left or not caller.has_ended

    async def scrape(self, times: int) -> None:
        for _ in range(times):
            await self.engine.newest_stats()

    async def break_down(self, before: int) -> None:
        if self.engine.status.is_up:
            self.hosts[max(-1 - before, -len(self.hosts))].break_down()


@examples(120)
@given(st.integers(1, 3), st.lists(actions, max_size=25))
def test_every_request_ends_once(processes: int, plan: list[tuple[Any, ...]]) -> None:
    scenario = Scenario(processes)
    asyncio.run(scenario.run(plan))
    for caller in scenario.callers:
        caller.check()
