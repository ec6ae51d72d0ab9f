"""Equal requests in flight: they share the answer of the first, and nothing that is its own."""

import asyncio
from typing import Any, cast

import pytest

from seqserve_server.contract.errors import (
    DeadlinePassed,
    EngineFault,
    QueueFull,
    ServiceError,
    Stage,
)
from seqserve_server.contract.events import Failed, Finished, Hypothesis, StopReason, Timeline
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.stats import CacheCounts
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.generate.engine_call import CachedCall, EngineCall, answer_of
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.front.telemetry.call_record import CallRecord

ANSWER = Finished([Hypothesis([1, 2, 3], -1.0, StopReason.EOS)])


class Engine:
    """Has the requests that were begun; the test ends them."""

    pending = 1

    def __init__(self) -> None:
        self.begun: list[Receive] = []
        self.cancelled: list[int] = []

    def submit(self, spec: GenerateSpec, receive: Receive) -> int:
        self.begun.append(receive)
        return len(self.begun) - 1

    def cancel(self, request_id: int, *, is_late: bool) -> None:
        self.cancelled.append(request_id)

    def end(self, event: Finished | Failed) -> None:
        self.begun[-1](event, Timeline(encode_began_s=1.0))


@pytest.fixture
def engine() -> Engine:
    return Engine()


class Rig:
    def __init__(self, engine: Engine) -> None:
        self.counts = CacheCounts()
        self._answers = AnswerCache(10_000, lambda *_: self.counts).version("m", 1)
        self._engine = cast(Any, engine)

    def begin(
        self, source: int = 7, make: Any = answer_of, wants_attention: Any = None
    ) -> EngineCall[Any]:
        spec = GenerateSpec(source=[source, 2], options=DecodingOptions(max_decoding_length=5))
        record = CallRecord(path="/s/m", request_id="1")
        others = record, make, wants_attention
        return CachedCall[Any](self._answers, self._engine, spec, *others).begin()


@pytest.fixture
def rig(engine: Engine) -> Rig:
    return Rig(engine)


@pytest.mark.parametrize("own", [QueueFull("full", 1.0), DeadlinePassed(Stage.QUEUE), None])
async def test_the_end_of_one_by_itself_is_not_that_of_the_others(
    engine: Engine, rig: Rig, own: ServiceError | None
) -> None:
    first, *others = (rig.begin() for _ in range(3))
    if own is None:
        first.cancel()
    else:
        engine.end(Failed(own))
    with pytest.raises(asyncio.CancelledError if own is None else type(own)):
        await first
    assert len(engine.begun) == 2, "one goes on, for which the other one waits"
    engine.end(ANSWER)
    assert await asyncio.gather(*others) == [ANSWER] * 2


async def test_a_failure_of_the_model_is_that_of_all(engine: Engine, rig: Rig) -> None:
    calls = [rig.begin() for _ in range(3)]
    engine.end(Failed(EngineFault("a step failed")))
    failures = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(failure) for failure in failures] == ["a step failed"] * 3
    assert len(engine.begun) == 1


async def test_an_error_of_ours_is_not_that_of_the_others(engine: Engine, rig: Rig) -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError

    for source, others in ((7, {"make": fail}), (8, {"wants_attention": fail})):
        first, other = rig.begin(source, **others), rig.begin(source)
        engine.end(ANSWER)
        with pytest.raises(ZeroDivisionError):
            await first
        assert await other == ANSWER


async def test_one_that_leaves_after_its_answer_leaves_the_next_flight_alone(
    engine: Engine, rig: Rig
) -> None:
    spent = rig.begin()
    engine.end(ANSWER)
    await spent
    spent.cancel()
    assert await rig.begin() == ANSWER
    assert engine.cancelled == []
