import asyncio
from collections import Counter

import pytest
from tests.unit.server.front.echo import PATIENCE_S, TOKEN_SCORE
from tests.unit.server.front.service import Service, serving

from seqserve.v1 import generation_pb2

CALLER = "x-caller"
REQUEST = generation_pb2.ScoreRequest(source="ab", target="abc")


async def test_scores(service: Service) -> None:
    answer = await service.generation.Score(REQUEST)
    assert (answer.model, answer.version, answer.source_tokens) == ("echo", 2, 3)
    assert list(answer.tokens)[:3] == ["a", "b", "c"]
    assert list(answer.token_scores) == [TOKEN_SCORE] * 4
    assert answer.score == pytest.approx(4 * TOKEN_SCORE)
    assert answer.normalized_score == pytest.approx(TOKEN_SCORE)


async def test_flood_of_one_caller_leaves_others_served() -> None:
    outcomes: Counter[tuple[str, str]] = Counter()

    async def score(service: Service, caller: str) -> None:
        code = await service.generation.Score(REQUEST, metadata=((CALLER, caller),)).code()
        outcomes[caller, code.name] += 1

    async def shows(service: Service, depth: int) -> None:
        await service.until_value(depth, "queue_depth", model="echo", priority="normal")

    async with (
        serving(max_queue=8, caller_share=0.5, caller_metadata=CALLER) as service,
        asyncio.timeout(PATIENCE_S),
        asyncio.TaskGroup() as group,
    ):
        service.runtime.may_score.clear()
        group.create_task(score(service, "loud"))
        await asyncio.to_thread(service.runtime.scoring.wait, PATIENCE_S)
        for _ in range(16):
            group.create_task(score(service, "loud"))
        while outcomes["loud", "RESOURCE_EXHAUSTED"] < 11:
            await asyncio.sleep(0.002)
        group.create_task(score(service, "quiet"))
        await shows(service, 6)
        refused = await service.value("rejected_total", reason="caller_share", model="echo")
        assert refused == 11
        service.runtime.may_score.set()
        await shows(service, 0)
    assert outcomes == {("loud", "OK"): 6, ("loud", "RESOURCE_EXHAUSTED"): 11, ("quiet", "OK"): 1}
