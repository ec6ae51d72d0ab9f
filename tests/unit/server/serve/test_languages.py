from collections.abc import AsyncIterator

import pytest
from tests.unit.server.front.calls import batch, bulk, ended, invalid, request
from tests.unit.server.front.generate.asking import pair
from tests.unit.server.front.service import Service, serving

from seqserve.v1 import generation_pb2 as pb
from seqserve.v1 import model_pb2
from seqserve_server.artifact.records import Template

TEMPLATE = Template(
    source_prefix=["{source}"],
    target_prefix=["{target}"],
    source_languages={"eng": "E", "deu": "D"},
    target_languages={"eng": "E", "deu": "D"},
    aliases={"en": "eng", "de": "deu"},
)


@pytest.fixture
async def several() -> AsyncIterator[Service]:
    async with serving(template=TEMPLATE) as service:
        yield service


async def test_languages_are_put_where_the_model_wants_them(several: Service) -> None:
    options = {"source_language": "en", "target_language": "deu"}
    answer = await several.generate("abc", **options)
    # The first token is forced; then the model goes on with its source, whose first token is E.
    assert answer.hypotheses[0].tokens == ["D", "a", "b", "c"]
    assert answer.source_tokens == 5


async def test_each_source_of_a_batch_has_the_languages_of_the_call(several: Service) -> None:
    asked = batch("ab", "c", source_language="de", target_language="en")
    answer = await several.generation.GenerateBatch(asked)
    tokens = [list(one.response.hypotheses[0].tokens) for one in answer.outcomes]
    assert tokens == [["E", "a", "b"], ["E", "c"]]


async def test_scores_leave_out_the_token_of_the_language(several: Service) -> None:
    asked = pb.ScoreRequest(source="a", target="bc", source_language="en", target_language="de")
    answer = await several.generation.Score(asked)
    assert list(answer.tokens) == ["b", "c", "</s>"]
    assert len(answer.token_scores) == 3 and answer.source_tokens == 3
    missing = pb.ScoreRequest(source="a", target="b")
    assert (await invalid(several.generation.Score(missing)))[0] == "source_language"


async def test_models_tell_their_languages(several: Service) -> None:
    listed = await several.models.ListModels(model_pb2.ListModelsRequest())
    ready = next(model for model in listed.models if model.state == model_pb2.MODEL_STATE_READY)
    assert list(ready.source_languages) == list(ready.target_languages) == ["deu", "eng"]


@pytest.fixture
async def pairs() -> AsyncIterator[Service]:
    others = {"en-de": pair("en", "de"), "de-en": pair("de", "en")}
    async with serving(others=others, default="echo") as service:
        yield service


async def test_languages_choose_the_model_of_a_call_that_names_none(pairs: Service) -> None:
    german = {"source_language": "en-US", "target_language": "de"}
    answer = await pairs.generate("abc", **german)
    assert (answer.model, answer.hypotheses[0].text) == ("en-de", "abc")
    asked = batch("ab", source_language="deu", target_language="en")
    found = await pairs.generation.GenerateBatch(asked)
    assert found.outcomes[0].response.model == "de-en"
    streamed = [event async for event in pairs.generation.GenerateStream(request("a", **german))]
    assert streamed[-1].result.model == "en-de"
    scored = pb.ScoreRequest(source="a", target="b", source_language="de", target_language="en")
    assert (await pairs.generation.Score(scored)).model == "de-en"
    text = pb.TokenizeRequest(text="abc", source_language="en", target_language="de")
    assert (await pairs.generation.Tokenize(text)).model == "en-de"
    assert (await pairs.generate("abc")).model == "echo"


async def test_each_request_of_a_bulk_call_has_the_model_of_its_languages(pairs: Service) -> None:
    codes = [("en", "de"), ("de", "en"), ("en", "fr")]
    requests = [
        bulk(id_, "abc", source_language=source, target_language=target)
        for id_, (source, target) in enumerate(codes)
    ]
    outcomes = await ended(pairs.generation.GenerateBulk(requests))
    assert [outcomes[id_].response.model for id_ in (0, 1)] == ["en-de", "de-en"]
    assert outcomes[2].failure.field == "options.target_language"


async def test_a_pair_without_a_model_is_refused_by_its_field(pairs: Service) -> None:
    call = pairs.generate("a", source_language="en", target_language="fr")
    reason = "no model writes 'fr'; the models know de, en"
    assert await invalid(call) == ("options.target_language", reason)
    scored = pb.ScoreRequest(source="a", target="b", source_language="fr", target_language="en")
    field, reason = await invalid(pairs.generation.Score(scored))
    assert field == "source_language" and reason.startswith("no model reads 'fr'")


async def test_a_model_that_is_named_must_serve_the_languages(pairs: Service) -> None:
    call = pairs.generate("a", model="en-de", source_language="de", target_language="en")
    assert await invalid(call) == ("options.source_language", "'de' is not one of en")
    options = {"source_language": "eng_Latn", "target_language": "de-AT"}
    assert (await pairs.generate("a", model="en-de", **options)).model == "en-de"


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
        found = await service.generation.GenerateBatch(batch("안녕", "녕", **options))
        languages = [each.response.detected_language.language for each in found.outcomes]
        assert languages == ["ko", "ko"]
        texts = ["안녕", "Καλημέρα", "?"]
        requests = [bulk(id_, text, **options) for id_, text in enumerate(texts)]
        outcomes = await ended(service.generation.GenerateBulk(requests))
        assert [outcomes[id_].response.model for id_ in (0, 1)] == ["ko-en", "el-en"]
        assert outcomes[2].failure.field == "options.source_language"
        named = await service.generate("안녕", model="ko-en", **options)
        assert named.detected_language.language == "ko"
        listed = await service.generation.DetectLanguage(pb.DetectLanguageRequest(text="안녕"))
        assert listed.languages[0].language == "ko"


async def test_detection_is_for_calls_that_generate(pairs: Service) -> None:
    scored = pb.ScoreRequest(source="a", target="b", source_language="auto", target_language="de")
    field, reason = await invalid(pairs.generation.Score(scored))
    assert field == "source_language" and "is auto, which is for calls that generate" in reason


async def test_a_text_in_the_target_language_is_refused() -> None:
    # Another model reads English.
    others = {"ko-en": pair("ko", "en"), "en-ko": pair("en", "ko")}
    async with serving(others=others, default="echo") as service:
        call = service.generate("Hello", source_language="auto", target_language="en")
        field, reason = await invalid(call)
    assert field == "options.source_language"
    assert reason.startswith("is auto, and the text is probably in 'en' already")


async def test_detection_is_bounded(pairs: Service) -> None:
    long = pb.DetectLanguageRequest(text="a" * 100_001)
    field, reason = await invalid(pairs.generation.DetectLanguage(long))
    assert field == "text" and reason.startswith("has 100,001 characters")
    many = pb.DetectLanguageRequest(text="a", languages=["en"] * 513)
    reason = "are 513; a call takes at most 512"
    assert await invalid(pairs.generation.DetectLanguage(many)) == ("languages", reason)
