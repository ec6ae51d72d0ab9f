"""With kept answers as without them: whatever callers and the engine do, in whatever order."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.errors import EngineFault, QueueFull, ServiceError
from seqserve_server.contract.events import (
    Failed,
    Finished,
    Hypothesis,
    Progress,
    StopReason,
    Timeline,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.stats import CacheCounts
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.generate.engine_call import CachedCall, EngineCall, answer_of
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.front.telemetry.call_record import CallRecord

# Room for a few answers, so that some make room for others.
MAX_BYTES = 1_500


def tokens_of(spec: GenerateSpec) -> list[int]:
    return [10 * spec.source[0] + step for step in range(spec.options.max_decoding_length)]


def answer_to(spec: GenerateSpec, stop: StopReason = StopReason.EOS) -> Finished:
    return Finished([Hypothesis(tokens_of(spec), -0.1 * spec.source[0], stop)])


class Engine:
    """Answers each source by a formula, when the test says so."""

    def __init__(self) -> None:
        self.running: dict[int, tuple[GenerateSpec, Receive]] = {}
        self._count = 0

    @property
    def pending(self) -> int:
        return len(self.running)

    def submit(self, spec: GenerateSpec, receive: Receive) -> int:
        self._count += 1
        self.running[self._count] = spec, receive
        return self._count

    def cancel(self, request_id: int, *, is_late: bool) -> None:
        self.running.pop(request_id, None)

    def end(self, number: int, event_of: Callable[[GenerateSpec], Finished | Failed]) -> None:
        if self.running:
            request_id = list(self.running)[number % len(self.running)]
            spec, receive = self.running.pop(request_id)
            receive(event_of(spec), Timeline(encode_began_s=1.0))

    def step(self, number: int) -> None:
        streams = [each for each in self.running.values() if each[0].streamed]
        if streams:
            spec, receive = streams[number % len(streams)]
            receive(Progress(tokens_of(spec)[:1]), None)


def question(
    source: int, length: int, client: str, flow: str, streamed: bool, limit_s: float, in_time: bool
) -> GenerateSpec:
    return GenerateSpec(
        source=[source, 2],
        options=DecodingOptions(max_decoding_length=length, time_limit_s=limit_s),
        client_id=client,
        flow_id=flow,
        streamed=streamed,
        is_bulk=in_time and not streamed,
    )


ENDS = ["whole", "whole", "full", "late", "step"]
asks = st.builds(
    question,
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from(["one", "two"]),
    st.booleans(),
    st.sampled_from([1e6, float("inf")]),
    st.booleans(),
)
# A caller leaves, if it is there; a running request ends; the version is unloaded and loaded again,
# and calls in progress go on.
actions = st.one_of(
    st.tuples(st.just("ask"), asks),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(ENDS)),
    st.tuples(st.just("end"), st.integers(0, 9), st.just("fault")),
    st.tuples(st.just("unload")),
)


@dataclass
class Caller:
    spec: GenerateSpec
    task: asyncio.Task[Finished]
    has_left: bool = False
    streamed: list[int] = field(default_factory=list)


class Rig:
    """Callers, an engine and the cache between them."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.counts = CacheCounts()
        self.cache = AnswerCache(MAX_BYTES, lambda model, version: self.counts)
        self.answers = self.cache.version("m", 1)
        self.callers: list[Caller] = []
        self.failures: set[str] = set()

    def ask(self, spec: GenerateSpec) -> None:
        record = CallRecord(path="/s/m", request_id="1")
        engine: Any = self.engine
        call: EngineCall[Finished] = CachedCall(self.answers, engine, spec, record, answer_of)
        caller: Caller

        async def answer() -> Finished:
            if spec.streamed:
                async for tokens in call.progress():
                    caller.streamed += tokens
                return call.result()
            return await call.begin()

        caller = Caller(spec, asyncio.get_running_loop().create_task(answer()))
        self.callers.append(caller)

    def leave(self, number: int) -> None:
        if number < len(self.callers) and not self.callers[number].task.done():
            self.callers[number].has_left = True
            self.callers[number].task.cancel()

    def end(self, number: int, how: str) -> None:
        ends: dict[str, Callable[[GenerateSpec], Finished | Failed]] = {
            "whole": answer_to,
            "full": lambda spec: Failed(QueueFull("full", 0.0)),
            "late": lambda spec: (
                answer_to(spec, StopReason.TIME_LIMIT)
                if spec.options.time_limit_s < float("inf")
                else answer_to(spec)
            ),
            "fault": lambda spec: Failed(EngineFault("a step failed")),
        }
        if how == "step":
            self.engine.step(number)
        else:
            self.failures |= {how} & {"full", "fault"}
            self.engine.end(number, ends[how])

    def unload(self) -> None:
        self.answers.close()
        assert self.counts.held_bytes == 0
        self.answers = self.cache.version("m", 1)

    async def finish(self) -> None:
        """Answers whatever still runs, until every caller has its end."""
        for _ in range(1_000):
            await settle()
            if all(caller.task.done() for caller in self.callers):
                return
            self.engine.end(0, answer_to)
        raise AssertionError("a caller waits for ever")


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


async def played(played_actions: list[Any]) -> None:
    rig = Rig()
    for (name, *arguments), pause in played_actions:
        getattr(rig, name)(*arguments)
        if pause:
            await settle()
        assert 0 <= rig.counts.held_bytes <= MAX_BYTES
    await rig.finish()
    for caller in rig.callers:
        check(caller, rig.failures)
    assert not rig.engine.running, "a request runs for nobody"
    answered = [each for each in rig.callers if not (each.has_left or each.task.exception())]
    assert sum(rig.counts.lookups.values()) >= len(answered)


def check(caller: Caller, failures: set[str]) -> None:
    if caller.has_left:
        assert caller.task.cancelled() or caller.task.exception() is None
        return
    error = caller.task.exception()
    if error is not None:
        kinds = {"full": QueueFull, "fault": EngineFault}
        assert isinstance(error, ServiceError)
        assert any(isinstance(error, kinds[each]) for each in failures)
        return
    answer = caller.task.result()
    tokens, limit = tokens_of(caller.spec), caller.spec.options.time_limit_s
    assert answer.best.token_ids == tokens and answer.best.score == -0.1 * caller.spec.source[0]
    if limit == float("inf"):
        assert answer.best.stop_reason is StopReason.EOS
    # The same token may be sent as a step more than once by this engine, but none is invented.
    assert set(caller.streamed) <= set(tokens)


@given(st.lists(st.tuples(actions, st.booleans()), max_size=30))
def test_every_caller_gets_its_own_answer(played_actions: list[Any]) -> None:
    asyncio.run(played(played_actions))
