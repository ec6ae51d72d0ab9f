import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.front.calls import invalid
from tests.unit.server.front.echo import (
    MAX_SOURCE,
    MAX_TARGET,
    PATIENCE_S,
    TOKEN_SCORE,
    byte_tokenizer,
)
from tests.unit.server.front.service import Service, serving

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.records import Template

TEXT = "Grüße 🙂"


async def tokenize(service: Service, text: str, **fields: Any) -> Any:
    asked = generation_pb2.TokenizeRequest(text=text, **fields)
    return await service.generation.Tokenize(asked)


async def test_tokens_and_their_places(service: Service) -> None:
    found = await tokenize(service, TEXT)
    assert (found.model, found.version) == ("echo", 2)
    assert len(found.tokens) == len(TEXT.encode())
    places = [TEXT[begin:end] for begin, end in zip(found.begins, found.ends, strict=True)]
    assert places == [character for character in TEXT for _ in character.encode()]


async def test_the_length_is_what_the_limit_counts(service: Service) -> None:
    """A source of the longest length is answered; one token more is refused."""
    text = "x" * (MAX_SOURCE - 1)
    found = await tokenize(service, text)
    assert (found.length, found.max_length) == (MAX_SOURCE, MAX_SOURCE)
    await service.generate(text)
    assert (await invalid(service.generate(text + "x")))[0] == "source"
    target = await tokenize(service, "x" * MAX_TARGET, is_target=True)
    assert (target.length, target.max_length) == (MAX_TARGET, MAX_TARGET)


async def test_the_tokens_of_languages_count() -> None:
    template = Template(source_prefix=["{target}"], target_languages={"de": "a", "es": "e"})
    async with serving(template=template) as service:
        found = await tokenize(service, "bc", target_language="de")
        assert (list(found.tokens), found.length) == (["b", "c"], 4)
        assert (await invalid(tokenize(service, "b")))[0] == "target_language"


async def test_a_text_may_be_empty_or_a_control_token(service: Service) -> None:
    found = await tokenize(service, "")
    assert (list(found.tokens), found.length) == ([], 1)
    assert (await tokenize(service, "</s>")).tokens == list("</s>")


async def test_tokens_become_the_text_again(service: Service) -> None:
    ids = (await tokenize(service, TEXT)).token_ids
    asked = generation_pb2.DetokenizeRequest(token_ids=[*ids, 2])
    answer = await service.generation.Detokenize(asked)
    assert (answer.model, answer.version, answer.text) == ("echo", 2, TEXT)


async def test_too_much_is_refused(service: Service) -> None:
    assert (await invalid(tokenize(service, "x" * 100_001)))[0] == "text"
    many = generation_pb2.DetokenizeRequest(token_ids=[5] * 100_001)
    assert (await invalid(service.generation.Detokenize(many)))[0] == "token_ids"
    strange = generation_pb2.DetokenizeRequest(token_ids=[5, 260])
    reason = "is 260; echo/2 has the ids 0 to 259"
    assert await invalid(service.generation.Detokenize(strange)) == ("token_ids[1]", reason)


async def test_an_answer_that_needs_too_much_memory_is_refused() -> None:
    async with serving(max_answer_mb=1) as service:
        assert (await invalid(tokenize(service, "x" * 100_000)))[0] == "text"
        assert await service.value("answer_bytes") == 0


@given(st.text())
def test_pieces_are_what_encode_gives(text: str) -> None:
    tokenizer = byte_tokenizer()
    found = tokenizer.pieces(text)
    assert [*found.ids, tokenizer.eos_id] == tokenizer.encode(text)
    assert [*found.ids, tokenizer.eos_id] == tokenizer.encode_target(tokenizer.spelled(text).text)
    assert [begin for begin, _ in found.offsets] == sorted(begin for begin, _ in found.offsets)


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
