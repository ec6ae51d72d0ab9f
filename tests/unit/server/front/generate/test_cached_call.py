"""Equal requests in flight: they share the answer of the first, and nothing that is its own."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.unit.server.front.echo import byte_tokenizer, echo_model, manifest
from tests.unit.server.front.generate.asking import AnsweringEngine, compiled, job_of, read
from tests.unit.server.front.generate.test_engine_call import ANSWER, RECORD, SPEC, FakeEngine

from seqserve_server.contract import errors
from seqserve_server.contract.events import Event, Failed, Finished, Hypothesis, StopReason
from seqserve_server.contract.stats import CacheCounts
from seqserve_server.front.generate import answer as answering
from seqserve_server.front.generate.engine_call import CachedCall, EngineCall, answer_of
from seqserve_server.front.models.answer_cache import AnswerCache


class Rig(FakeEngine):
    """An engine behind a cache."""

    def __init__(self) -> None:
        super().__init__()
        self._answers = AnswerCache(10_000, lambda *_: CacheCounts()).version("m", 1)

    def begin(
        self, source: int = 7, make: Any = answer_of, wants_attention: Any = None
    ) -> EngineCall[Any]:
        spec = replace(SPEC, source=[source, 2], streamed=False)
        others = RECORD, make, wants_attention
        return CachedCall[Any](self._answers, cast(Any, self), spec, *others).begin()

    def end(self, event: Event) -> None:
        self.send(event, encode_began_s=1.0)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize(
    "own", [errors.QueueFull("full", 1.0), errors.DeadlinePassed(errors.Stage.QUEUE), None]
)
async def test_the_end_of_one_is_not_that_of_the_others(
    rig: Rig, own: errors.ServiceError | None
) -> None:
    first, *others = (rig.begin() for _ in range(3))
    if own is None:
        first.cancel()
    else:
        rig.end(Failed(own))
    with pytest.raises(asyncio.CancelledError if own is None else type(own)):
        await first
    assert len(rig.specs) == 2, "one goes on, for which the other one waits"
    rig.end(ANSWER)
    assert await asyncio.gather(*others) == [ANSWER] * 2


async def test_a_failure_of_the_model_is_that_of_all(rig: Rig) -> None:
    calls = [rig.begin() for _ in range(3)]
    rig.end(Failed(errors.EngineFault("a step failed")))
    failures = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(failure) for failure in failures] == ["a step failed"] * 3
    assert len(rig.specs) == 1


async def test_an_error_of_ours_is_not_that_of_the_others(rig: Rig) -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError

    for source, others in ((7, {"make": fail}), (8, {"wants_attention": fail})):
        first, other = rig.begin(source, **others), rig.begin(source)
        rig.end(ANSWER)
        with pytest.raises(ZeroDivisionError):
            await first
        assert await other == ANSWER


async def test_one_that_leaves_after_its_answer_leaves_the_next_flight_alone(rig: Rig) -> None:
    spent = rig.begin()
    rig.end(ANSWER)
    await spent
    spent.cancel()
    assert await rig.begin() == ANSWER
    assert rig.cancelled == []


def test_stop_sequence_that_ends_within_a_token_is_not_streamed() -> None:
    tokenizer = byte_tokenizer(("a", "b"))
    ids = tokenizer.encode("xab")[:-1]
    assert len(ids) == 2
    best = Hypothesis(ids, -1.0, StopReason.STOP_SEQUENCE, text_length=2)
    engine = AnsweringEngine(lambda spec: Finished([best]))
    cache = AnswerCache(1_000_000, lambda *_: CacheCounts())
    model = echo_model(manifest(), tokenizer)
    options = compiled(model, stop_sequences=["b"])
    model = replace(model, engine=cast(Any, engine), answers=cache.version("echo", 1))

    async def streamed() -> tuple[list[str], str]:
        job = job_of(model, options, read("c", model, stop_sequences=["b"]))
        *pieces, whole = [cast(Any, each) async for each in answering.streamed(job)]
        return [each.text for each in pieces], whole.hypotheses[0].text

    assert [asyncio.run(streamed()) for _ in range(2)] == [(["xa"], "xa")] * 2
    assert len(engine.specs) == 1
