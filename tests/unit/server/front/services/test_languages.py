"""A model of several languages, from the wire to the engine and back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest_asyncio
from tests.unit.server.front.service import Service, failure, request, serving

from seqserve.v1 import generation_pb2, model_pb2
from seqserve_server.contract.template import Template

pb = generation_pb2

TEMPLATE = Template(
    source_prefix=["{source}"],
    target_prefix=["{target}"],
    source_languages={"eng": "E", "deu": "D"},
    target_languages={"eng": "E", "deu": "D"},
    aliases={"en": "eng", "de": "deu"},
)


@pytest_asyncio.fixture
async def several() -> AsyncIterator[Service]:
    async with serving(template=TEMPLATE) as service:
        yield service


async def test_languages_are_put_where_the_model_wants_them(several: Service) -> None:
    options = {"source_language": "en", "target_language": "deu"}
    answer = await several.generation.Generate(request("abc", **options))
    # The first token is forced; then the model goes on with its source, whose first token is E.
    assert answer.hypotheses[0].tokens == ["D", "a", "b", "c"]
    assert answer.source_tokens == 5


async def test_each_source_of_a_batch_has_the_languages_of_the_call(several: Service) -> None:
    options = pb.GenerationOptions(source_language="de", target_language="en")
    asked = pb.GenerateBatchRequest(sources=["ab", "c"], options=options)
    answer = await several.generation.GenerateBatch(asked)
    tokens = [list(one.response.hypotheses[0].tokens) for one in answer.outcomes]
    assert tokens == [["E", "a", "b"], ["E", "c"]]


async def test_missing_language_is_named_with_those_that_there_are(several: Service) -> None:
    error = await failure(several.generation.Generate(request("abc", source_language="en")))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "options.target_language: is missing; echo/2 needs one of deu, eng" in error.details()


async def test_scores_leave_out_the_token_of_the_language(several: Service) -> None:
    asked = pb.ScoreRequest(source="a", target="bc", source_language="en", target_language="de")
    answer = await several.generation.Score(asked)
    assert list(answer.tokens) == ["b", "c", "</s>"]
    assert len(answer.token_scores) == 3 and answer.source_tokens == 3
    error = await failure(several.generation.Score(pb.ScoreRequest(source="a", target="b")))
    assert "source_language: is missing" in error.details()


async def test_models_tell_their_languages(several: Service) -> None:
    listed = await several.models.ListModels(model_pb2.ListModelsRequest())
    ready = next(model for model in listed.models if model.state == model_pb2.MODEL_STATE_READY)
    assert list(ready.source_languages) == list(ready.target_languages) == ["deu", "eng"]
