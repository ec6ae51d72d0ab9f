"""Whatever callers and hosts do: each request gets its own answer or one error; none is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.engine.fake_runtime import EOS, FakeRuntime, expected
from tests.unit.server.front.engine_client.thread_host import ThreadHost

from seqserve_server.contract.errors import ModelUnavailable, QueueFull
from seqserve_server.contract.events import Event, Failed, Finished, Progress, StopReason
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Request
from seqserve_server.front.engine_client.client import RemoteEngine

PATIENCE_S = 60.0
LIMITS = EngineLimits(workers=2, slots=4, max_queue=6, max_source_tokens_per_step=20)


@dataclass(frozen=True, slots=True)
class Arrive:
    """A caller comes."""

    source: list[int]
    longest: int
    streamed: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """A caller goes, if there is one of that number."""

    number: int


@dataclass(frozen=True, slots=True)
class Look:
    """Somebody scrapes, so often; meanwhile the engine goes on."""

    times: int


@dataclass(frozen=True, slots=True)
class BreakDown:
    """The host ends without a word."""


Deed = Arrive | Leave | Look | BreakDown

arrivals = st.builds(
    Arrive, st.lists(st.integers(4, 40), max_size=6), st.integers(1, 10), st.booleans()
)
deeds = st.one_of(
    arrivals,
    arrivals,
    st.builds(Leave, st.integers(0, 12)),
    st.builds(Look, st.integers(1, 9)),
    st.builds(BreakDown),
)


@dataclass(eq=False)
class Caller:
    """A request, and what it was told."""

    deed: Arrive
    request: Request = field(init=False)
    events: list[Event] = field(default_factory=list)
    refused: bool = False
    left: bool = False

    def __post_init__(self) -> None:
        self.request = Request(
            source=[*self.deed.source, EOS],
            options=DecodingOptions(max_decoding_length=self.deed.longest),
            receive=self._receive,
            streamed=self.deed.streamed,
        )

    def _receive(self, event: Event) -> None:
        assert not self.left, "it was told something after it had left"
        assert not self.has_ended, "it was told something after its end"
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
            words = [word for event in progress for word in event.token_ids]  # type: ignore[union-attr]
            if isinstance(last, Finished):
                assert last == expected(self.request.source, self.request.options)
                assert words == (told_before(last) if self.deed.streamed else [])
            else:
                assert isinstance(last, Failed)
                assert isinstance(last.error, (ModelUnavailable, QueueFull))


def told_before(answer: Finished) -> list[int]:
    """Gives the words that come before the answer, which brings its last one itself."""
    words = answer.best.token_ids
    return words if answer.best.stop_reason is StopReason.EOS else words[:-1]


class Day:
    """Callers of one engine, whose hosts may break down."""

    def __init__(self) -> None:
        self.hosts: list[ThreadHost] = []
        self.callers: list[Caller] = []

    async def run(self, plan: list[Deed]) -> None:
        engine = RemoteEngine(self._launch)
        await asyncio.to_thread(engine.load)
        await engine.start()
        for deed in plan:
            await self._do(engine, deed)
        # A request that is lost is waited for in vain.
        async with asyncio.timeout(PATIENCE_S):
            while not all(caller.is_over for caller in self.callers):
                await asyncio.sleep(0.001)
            while not engine.is_up:
                await asyncio.sleep(0.001)
            while (report := await asyncio.wrap_future(engine.ask())).slots_in_use:
                # What callers left is dropped before the next step.
                await asyncio.sleep(0.001)
        assert report.queue_depth == 0
        await engine.stop()

    def _launch(self) -> ThreadHost:
        self.hosts.append(ThreadHost(FakeRuntime(), LIMITS))
        return self.hosts[-1]

    async def _do(self, engine: RemoteEngine, deed: Deed) -> None:
        if isinstance(deed, Arrive):
            caller = Caller(deed)
            self.callers.append(caller)
            try:
                engine.submit(caller.request)
            except ModelUnavailable:
                caller.refused = True
        elif isinstance(deed, Leave):
            if deed.number < len(self.callers):
                caller = self.callers[deed.number]
                engine.cancel(caller.request)
                caller.left = caller.left or not caller.has_ended
        elif isinstance(deed, Look):
            for _ in range(deed.times):
                await asyncio.wrap_future(engine.ask())
        elif engine.is_up:
            self.hosts[-1].break_down()


@settings(max_examples=120, deadline=None)
@given(st.lists(deeds, max_size=25))
def test_every_request_ends_once(plan: list[Deed]) -> None:
    day = Day()
    asyncio.run(day.run(plan))
    for caller in day.callers:
        caller.check()
