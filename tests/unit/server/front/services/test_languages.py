from collections.abc import AsyncIterator

import grpc
import pytest_asyncio
from tests.unit.server.front.service import Service, failure, request, serving

from seqserve.v1 import generation_pb2, model_pb2
from seqserve_server.artifact.records import Template

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


def pair(source: str, target: str) -> Template:
    return Template(source_languages={source: ""}, target_languages={target: ""})


@pytest_asyncio.fixture
async def pairs() -> AsyncIterator[Service]:
    others = {"en-de": pair("en", "de"), "de-en": pair("de", "en")}
    async with serving(others=others, default="echo") as service:
        yield service


async def test_languages_choose_the_model_of_a_call_that_names_none(pairs: Service) -> None:
    german = {"source_language": "en-US", "target_language": "de"}
    answer = await pairs.generation.Generate(request("abc", **german))
    assert (answer.model, answer.hypotheses[0].text) == ("en-de", "abc")
    options = pb.GenerationOptions(source_language="deu", target_language="en")
    batch = await pairs.generation.GenerateBatch(
        pb.GenerateBatchRequest(sources=["ab"], options=options)
    )
    assert batch.outcomes[0].response.model == "de-en"
    streamed = [event async for event in pairs.generation.GenerateStream(request("a", **german))]
    assert streamed[-1].result.model == "en-de"
    scored = pb.ScoreRequest(source="a", target="b", source_language="de", target_language="en")
    assert (await pairs.generation.Score(scored)).model == "de-en"
    text = pb.TokenizeRequest(text="abc", source_language="en", target_language="de")
    assert (await pairs.generation.Tokenize(text)).model == "en-de"
    assert (await pairs.generation.Generate(request("abc"))).model == "echo"


async def test_each_request_of_a_bulk_call_has_the_model_of_its_languages(pairs: Service) -> None:
    codes = [("en", "de"), ("de", "en"), ("en", "fr")]
    requests = [
        pb.GenerateBulkRequest(
            id=id_, request=request("abc", source_language=source, target_language=target)
        )
        for id_, (source, target) in enumerate(codes)
    ]
    answers = [answer async for answer in pairs.generation.GenerateBulk(iter(requests))]
    outcomes = {answer.id: answer.outcome for answer in answers}
    assert [outcomes[id_].response.model for id_ in (0, 1)] == ["en-de", "de-en"]
    assert outcomes[2].failure.field == "options.target_language"


async def test_a_pair_without_a_model_is_refused_by_its_field(pairs: Service) -> None:
    error = await failure(
        pairs.generation.Generate(request("a", source_language="en", target_language="fr"))
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == (
        "options.target_language: no model writes 'fr'; the models know de, en"
    )
    scored = pb.ScoreRequest(source="a", target="b", source_language="fr", target_language="en")
    error = await failure(pairs.generation.Score(scored))
    assert error.details().startswith("source_language: no model reads 'fr'")


async def test_a_model_that_is_named_must_serve_the_languages(pairs: Service) -> None:
    options = {"source_language": "de", "target_language": "en"}
    error = await failure(pairs.generation.Generate(request("a", model="en-de", **options)))
    assert error.details() == "options.source_language: 'de' is not one of en"
    options = {"source_language": "eng_Latn", "target_language": "de-AT"}
    answer = await pairs.generation.Generate(request("a", model="en-de", **options))
    assert answer.model == "en-de"


async def test_a_detected_language_chooses_the_model_and_is_in_the_answer() -> None:
    others = {"ko-en": pair("ko", "en"), "el-en": pair("el", "en")}
    async with serving(others=others, default="echo") as service:
        options = {"source_language": "auto", "target_language": "en"}
        greek = request("Καλημέρα", **options)
        answer = await service.generation.Generate(greek)
        assert (answer.model, answer.detected_language.language) == ("el-en", "el")
        assert answer.detected_language.confidence > 0.9
        streamed = [each async for each in service.generation.GenerateStream(greek)]
        assert streamed[-1].result.detected_language.language == "el"
        batch = await service.generation.GenerateBatch(
            pb.GenerateBatchRequest(sources=["안녕", "녕"], options=greek.options)
        )
        languages = [each.response.detected_language.language for each in batch.outcomes]
        assert languages == ["ko", "ko"]
        requests = [
            pb.GenerateBulkRequest(id=id_, request=request(text, **options))
            for id_, text in enumerate(["안녕", "Καλημέρα", "?"])
        ]
        bulk = [each async for each in service.generation.GenerateBulk(iter(requests))]
        outcomes = {each.id: each.outcome for each in bulk}
        assert [outcomes[id_].response.model for id_ in (0, 1)] == ["ko-en", "el-en"]
        assert outcomes[2].failure.field == "options.source_language"
        named = await service.generation.Generate(request("안녕", model="ko-en", **options))
        assert named.detected_language.language == "ko"
        listed = await service.generation.DetectLanguage(pb.DetectLanguageRequest(text="안녕"))
        assert listed.languages[0].language == "ko"


async def test_detection_is_for_calls_that_generate(pairs: Service) -> None:
    scored = pb.ScoreRequest(source="a", target="b", source_language="auto", target_language="de")
    error = await failure(pairs.generation.Score(scored))
    assert error.details().startswith("source_language: is auto, which is for calls that generate")
    long = pb.DetectLanguageRequest(text="a" * 100_001)
    error = await failure(pairs.generation.DetectLanguage(long))
    assert error.details().startswith("text: has 100,001 characters")


async def test_a_text_in_the_target_language_is_refused() -> None:
    # Another model reads English.
    others = {"ko-en": pair("ko", "en"), "en-ko": pair("en", "ko")}
    async with serving(others=others, default="echo") as service:
        auto = request("Hello", source_language="auto", target_language="en")
        error = await failure(service.generation.Generate(auto))
        assert error.details().startswith(
            "options.source_language: is auto, and the text is probably in 'en' already"
        )


async def test_more_languages_than_can_be_compared_are_refused(pairs: Service) -> None:
    asked = pb.DetectLanguageRequest(text="a", languages=["en"] * 513)
    error = await failure(pairs.generation.DetectLanguage(asked))
    assert error.details() == "languages: are 513; a call takes at most 512"
