"""Both clients over a transport without a network, by the same tests."""

from typing import Any

import pytest

from seqserve import (
    AsyncClient,
    DetectedLanguage,
    InternalError,
    InvalidArgument,
    LanguagePair,
    ModelState,
    NotFound,
    Overloaded,
    Result,
    RetryPolicy,
    Unavailable,
)
from seqserve._transport.connection import Method
from seqserve.v1 import generation_pb2, model_pb2

from .answers import answer, stream_of, tokenized
from .fake_transport import AsyncFakeTransport
from .sessions import Connect

AT_ONCE = RetryPolicy(max_attempts=4, initial_backoff_s=0.0)
UNAVAILABLE = Unavailable("UNAVAILABLE", "loading", retry_after_s=0.0)
FULL = Overloaded("RESOURCE_EXHAUSTED", "full", retry_after_s=0.0)
BROKEN = Unavailable("INTERNAL", "Received RST_STREAM with error code 2")


@pytest.fixture
def session(connect: Connect) -> Connect:
    return lambda *outcomes, **settings: connect(*outcomes, **{"retry": AT_ONCE, **settings})


def test_generate(session: Connect) -> None:
    run = session([answer("hello")])
    assert run.generate("hello", model="m", max_decoding_length=3).text == "HELLO"
    (call,) = run.calls
    assert call.method is Method.GENERATE
    assert call.request == generation_pb2.GenerateRequest(
        source="hello", model="m", options=generation_pb2.GenerationOptions(max_decoding_length=3)
    )
    assert call.timeout_s == pytest.approx(30.0, abs=5.0)


def test_the_timeout_of_a_call_overrides_that_of_the_client(session: Connect) -> None:
    run = session([answer("a")], [answer("b")], timeout_s=7.0)
    run.generate("a")
    run.generate("b", timeout_s=1000.0)
    seconds = [call.timeout_s or 0.0 for call in run.calls]
    assert seconds[0] <= 7.0 < 900 < seconds[1] <= 1000.0


def test_a_call_is_retried(session: Connect) -> None:
    run = session([UNAVAILABLE], [FULL], [BROKEN], [answer("at last")])
    assert run.generate("at last").text == "AT LAST"
    timeouts = [call.timeout_s or 0.0 for call in run.calls]
    assert len(timeouts) == 4 and timeouts == sorted(timeouts, reverse=True)
    # The last failure is raised, and one that is not retried at once.
    run = session([UNAVAILABLE], [UNAVAILABLE], [UNAVAILABLE], [FULL], [answer("too late")])
    with pytest.raises(Overloaded):
        run.generate("a")
    assert len(run.calls) == 4
    with pytest.raises(NotFound, match="there are: en-de"):
        session([NotFound("NOT_FOUND", "there are: en-de")]).generate("a")


@pytest.mark.parametrize(
    ("source", "options", "reason"),
    [
        ("\udce9", {}, "source: holds half a character"),
        ("a", {"timeout_s": 0.0}, "timeout_s"),
        ("a", {"stop_sequences": "end"}, "stop_sequences: 'end' is not a list of texts"),
    ],
)
def test_what_cannot_be_sent_is_not_sent(
    session: Connect, source: str, options: dict[str, Any], reason: str
) -> None:
    run = session()
    for call, sources in (
        (run.generate, source),
        (run.stream, source),
        (run.generate_many, [source]),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            call(sources, **options)
    assert run.calls == []


def test_a_stream_is_read_to_its_status_and_later_errors_ignored(session: Connect) -> None:
    run = session([*stream_of("ab"), BROKEN])
    pieces = run.stream("ab", version=3)
    assert [piece.text for piece in pieces] == ["A", "B", ""]
    assert [piece.result is None for piece in pieces] == [True, True, False]
    [call] = run.calls
    assert (call.method, call.request.version) == (Method.GENERATE_STREAM, 3)
    # Up to the status: leaving earlier would cancel the call.
    assert call.is_read


def test_a_stream_is_retried_before_its_first_message_and_never_after_it(session: Connect) -> None:
    run = session([UNAVAILABLE], [BROKEN], stream_of("a"))
    assert "".join(piece.text for piece in run.stream("a")) == "A"
    assert len(run.calls) == 3
    run = session([stream_of("ab")[0], BROKEN], stream_of("ab"))
    with pytest.raises(Unavailable, match="RST_STREAM"):
        run.stream("ab")
    assert len(run.calls) == 1


def test_a_stream_without_a_result_breaks_the_contract(session: Connect) -> None:
    run = session(stream_of("ab")[:2])
    with pytest.raises(InternalError, match="without a result"):
        run.stream("ab")


def test_many(session: Connect) -> None:
    run = session([answer("a")], [UNAVAILABLE], [answer("b")], [answer("c")])
    results = run.generate_many(["a", "b", "c"], concurrency=1, model="m")
    assert [result.text for result in results] == ["A", "B", "C"]
    assert {call.request.model for call in run.calls} == {"m"}


def test_a_failure_ends_many_after_what_came_before(session: Connect) -> None:
    refused = InvalidArgument("INVALID_ARGUMENT", "source: too long", field="source")
    run = session([answer("a")], [refused], [answer("c")])
    with pytest.raises(InvalidArgument, match="too long"):
        run.generate_many(["a", "b", "c"], concurrency=1)


def test_every_method_of_generation_takes_every_option(session: Connect) -> None:
    numbers: dict[str, Any] = {"beam_size": 4, "top_p": 0.5}
    options = numbers | {"suppress_sequences": [["a", "b"], ["c"]]}
    run = session([answer("a")], stream_of("a"), [answer("a")])
    run.generate("a", **options)
    run.stream("a", **options)
    run.generate_many(["a"], **options)
    wanted = generation_pb2.GenerationOptions(**numbers)
    for tokens in options["suppress_sequences"]:
        wanted.suppress_sequences.add(tokens=tokens)
    assert [call.request.options for call in run.calls] == [wanted] * 3


def test_batch_has_an_outcome_for_each_source(session: Connect) -> None:
    failure = generation_pb2.Failure(code=3, message="is empty", field="source")
    full = generation_pb2.Failure(code=8, message="full", retry_after_ms=250.0)
    response = generation_pb2.GenerateBatchResponse(
        outcomes=[
            generation_pb2.Outcome(response=answer("a")),
            generation_pb2.Outcome(failure=failure),
            generation_pb2.Outcome(failure=full),
        ]
    )
    run = session([UNAVAILABLE], [response])
    good, empty, late = run.generate_batch(["a", "", "b"], model="m", beam_size=2)
    assert isinstance(good, Result) and good.text == "A"
    assert isinstance(empty, InvalidArgument) and empty.field == "source"
    assert isinstance(late, Overloaded) and late.retry_after_s == 0.25
    request = generation_pb2.GenerateBatchRequest(
        model="m", sources=["a", "", "b"], options=generation_pb2.GenerationOptions(beam_size=2)
    )
    sent = [(call.method, call.request) for call in run.calls]
    assert sent == [(Method.GENERATE_BATCH, request)] * 2


def test_batch_that_lacks_an_outcome(session: Connect) -> None:
    run = session([generation_pb2.GenerateBatchResponse()])
    with pytest.raises(InternalError, match="outcomes"):
        run.generate_batch(["a"])


@pytest.mark.parametrize("sources", ["a text", b"a text"])
def test_one_text_is_not_a_list_of_texts(session: Connect, sources: Any) -> None:
    run = session()
    for call in (run.generate_many, run.generate_bulk):
        with pytest.raises(InvalidArgument, match=r"sources: .*a text' is one text") as refused:
            call(sources)
        assert refused.value.field == "sources"
    for wrong in ("a text", [1], None):
        with pytest.raises(InvalidArgument, match="sources"):
            run.generate_batch(wrong)
    assert run.calls == []


def test_tokenize_and_detokenize(session: Connect) -> None:
    request = generation_pb2.TokenizeRequest(text="good  day", is_target=True, model="m")
    run = session([tokenized(request)])
    found = run.tokenize("good  day", is_target=True, model="m")
    assert (found.tokens, found.length, found.max_length) == (("▁good", "▁day"), 3, 64)
    assert (found.begins, found.ends) == ((0, 6), (4, 9))
    assert [(call.method, call.request) for call in run.calls] == [(Method.TOKENIZE, request)]
    run = session([generation_pb2.DetokenizeResponse(model="m", version=1, text="good day")])
    assert run.detokenize([10, 11]) == "good day"
    expected = generation_pb2.DetokenizeRequest(token_ids=[10, 11])
    assert [(call.method, call.request) for call in run.calls] == [(Method.DETOKENIZE, expected)]


def test_languages_are_detected_and_their_pairs_listed(session: Connect) -> None:
    found = generation_pb2.DetectedLanguage(language="de", confidence=0.75)
    run = session([generation_pb2.DetectLanguageResponse(languages=[found])])
    assert run.detect_language("Guten Tag", ["de", "en"]) == [
        DetectedLanguage(language="de", confidence=0.75)
    ]
    request = generation_pb2.DetectLanguageRequest(text="Guten Tag", languages=["de", "en"])
    assert [(call.method, call.request) for call in run.calls] == [
        (Method.DETECT_LANGUAGE, request)
    ]
    pair = {"source_language": "ko", "target_language": "de", "pivot_language": "en"}
    models = ["ko-en", "en-de"]
    listed = model_pb2.ListModelsResponse(
        pairs=[model_pb2.LanguagePair(**pair, models=models)]  # type: ignore[arg-type]
    )
    run = session([listed])
    assert run.language_pairs() == [LanguagePair(**pair, models=tuple(models))]  # type: ignore[arg-type]
    assert run.calls[0].request == model_pb2.ListModelsRequest(with_pairs=True)


@pytest.mark.parametrize("token_ids", [["a"], [-1], [1 << 32], "12", 5])
def test_what_is_no_list_of_ids_is_refused(session: Connect, token_ids: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        session().detokenize(token_ids)
    assert caught.value.field == "token_ids"


def test_models(session: Connect) -> None:
    message = model_pb2.Model(name="m", version=3)
    run = session(
        [model_pb2.ListModelsResponse(models=[message, message])],
        [model_pb2.GetModelResponse(model=message)],
    )
    assert [model.version for model in run.models()] == [3, 3]
    assert run.model("m", 3).name == "m"
    assert [call.method for call in run.calls] == [Method.LIST_MODELS, Method.GET_MODEL]
    assert run.calls[1].request == model_pb2.GetModelRequest(model="m", version=3)


def test_glossaries(session: Connect) -> None:
    message = model_pb2.Glossary(name="g", source_language="en", target_language="de")
    entries = [generation_pb2.Term(source="tea", target="Tee")]
    run = session(
        [model_pb2.ListGlossariesResponse(glossaries=[message])],
        [model_pb2.GetGlossaryResponse(glossary=message, entries=entries)],
    )
    assert [(each.name, each.entries) for each in run.glossaries()] == [("g", ())]
    found = run.glossary("g", "en", target_language="de")
    assert (found.source_language, found.entries) == ("en", (("tea", "Tee"),))
    assert run.calls[1].request == model_pb2.GetGlossaryRequest(
        glossary="g", source_language="en", target_language="de"
    )


def test_loading_unloading_and_splitting_traffic(session: Connect) -> None:
    ready = model_pb2.Model(name="m", version=3, state=model_pb2.MODEL_STATE_READY)
    unloaded = model_pb2.Model(name="m", version=3, state=model_pb2.MODEL_STATE_AVAILABLE)
    run = session(
        [UNAVAILABLE],
        [model_pb2.LoadModelResponse(model=ready)],
        [model_pb2.UnloadModelResponse(model=unloaded)],
        [model_pb2.SetTrafficResponse(models=[ready, ready])],
    )
    assert run.load_model("m", 3).state is ModelState.READY
    assert run.unload_model("m", 3).state is ModelState.AVAILABLE
    assert len(run.set_traffic("m", {3: 1})) == 2
    methods = [Method.LOAD_MODEL, Method.LOAD_MODEL, Method.UNLOAD_MODEL, Method.SET_TRAFFIC]
    assert [call.method for call in run.calls] == methods
    assert run.calls[3].request == model_pb2.SetTrafficRequest(model="m", weights={3: 1})


async def test_async_many_reads_an_async_iterable() -> None:
    async def sources() -> Any:
        yield "a"
        yield "b"

    transport = AsyncFakeTransport([[answer("a")], [answer("b")]])
    async with AsyncClient(transport=transport) as client:
        results = [result async for result in client.generate_many(sources(), concurrency=1)]
    assert [result.text for result in results] == ["A", "B"]
