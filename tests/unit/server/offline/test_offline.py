import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import seqserve_server
from seqserve.errors import CallError, Cancelled, InvalidArgument, OptionError
from seqserve.results import Result
from seqserve_server import Offline
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.offline.offline import template_of

TEXTS = ["The coffee tastes music.", "Nobody paints eleven books?", "Ein Igel, 7 Äpfel!", "a"]


@pytest.fixture(scope="module")
def offline(tiny_artifact: Path) -> Iterator[Offline]:
    with Offline(tiny_artifact, workers=2, slots=8) as offline:
        yield offline


def test_it_is_the_one_name_that_the_package_offers() -> None:
    assert seqserve_server.__all__ == ["Offline"]
    with pytest.raises(AttributeError, match="has no attribute 'Online'"):
        _ = seqserve_server.Online  # type: ignore[attr-defined]


def test_results_are_those_of_the_engine_in_the_order_of_the_texts(
    offline: Offline, tiny_offline: LocalEngine
) -> None:
    results = offline.generate(TEXTS * 20)
    assert [result.text for result in results] == tiny_offline(TEXTS) * 20
    first = results[0]
    assert (first.model, first.version) == ("tiny", 1)
    [answer] = tiny_offline.decode([tiny_offline.encode(TEXTS[0])])
    assert first.hypotheses[0].token_ids == tuple(answer.best.token_ids)
    assert first.score == pytest.approx(answer.best.score)


def test_one_text_gives_one_result(offline: Offline) -> None:
    assert offline.generate(TEXTS[0]).text == offline.generate(TEXTS)[0].text


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"beam_size": 0}, "options.beam_size"),
        ({"beam_size": "two"}, "beam_size"),
        ({"max_decoding_length": 999}, "options.max_decoding_length"),
        ({"source_language": "auto"}, "options.source_language"),
        ({"glossary": "house"}, "options.glossary"),
    ],
)
def test_a_wrong_option_is_named(offline: Offline, options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        offline.generate(TEXTS, **options)  # type: ignore[call-overload]
    assert raised.value.field == field


@pytest.mark.parametrize("name", ["beam", "model", "version", "priority"])
def test_an_unknown_option_is_named(offline: Offline, name: str) -> None:
    with pytest.raises(TypeError, match=f"unknown option {name!r}"):
        offline.generate_iter(TEXTS, **{name: 2})  # type: ignore[misc]


def test_a_text_that_fails_has_its_own_error(offline: Offline) -> None:
    texts = [TEXTS[0], "", "word " * 100, "\ud800", 7, TEXTS[1]]
    outcomes = list(offline.generate_iter(texts))  # type: ignore[arg-type]
    assert [type(outcome) for outcome in outcomes] == [Result, *[InvalidArgument] * 4, Result]
    errors = [outcome for outcome in outcomes if isinstance(outcome, CallError)]
    assert {error.field for error in errors} == {"source"}
    with pytest.raises(InvalidArgument, match="source: is empty") as raised:
        offline.generate([TEXTS[0], ""])
    assert raised.value.__notes__ == ["It is of the text at index 1."]


def test_one_text_is_no_iterable_of_texts(offline: Offline) -> None:
    with pytest.raises(InvalidArgument, match="is one text"):
        offline.generate_iter("It rains.")


def test_an_endless_iterable_is_read_only_as_results_are_taken(offline: Offline) -> None:
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield TEXTS[read % len(TEXTS)]

    results = offline.generate_iter(texts())
    for taken in range(1, 101):
        next(results)
        assert read <= taken + 4 * 8
    results.close()
    assert len(offline.generate(TEXTS)) == len(TEXTS)


def test_threads_share_it(offline: Offline) -> None:
    found: dict[int, list[str]] = {}

    def run(number: int) -> None:
        texts = TEXTS[number % 4 :] * 10
        found[number] = [result.text for result in offline.generate(texts)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [result.text for result in offline.generate(TEXTS)]
    assert found == {number: expected[number % 4 :] * 10 for number in range(4)}


def test_close_ends_the_threads_and_what_is_under_way(tiny_artifact: Path) -> None:
    before = set(threading.enumerate())
    offline = Offline(tiny_artifact, slots=4)
    results = offline.generate_iter(TEXTS * 1000)
    next(results)
    offline.close()
    offline.close()
    assert not set(threading.enumerate()) - before
    with pytest.raises(Cancelled, match="the model is closed"):
        list(results)
    with pytest.raises(Cancelled, match="the model is closed"):
        offline.generate(TEXTS)


@pytest.mark.parametrize("name", ["workers", "threads", "slots"])
def test_a_number_that_is_too_small_is_named(tiny_artifact: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}: 0 is less than 1"):
        Offline(tiny_artifact, **{name: 0})


def test_a_gpu_takes_no_second_worker(tiny_artifact: Path) -> None:
    with pytest.raises(OptionError, match="--workers: with --provider cuda each GPU has one"):
        Offline(tiny_artifact, provider=Provider.CUDA, workers=2)


def test_no_texts_have_no_outcomes(offline: Offline) -> None:
    assert offline.begin([], template_of({})).result() == []


def test_texts_that_begin_together_have_their_own_outcomes_in_their_order(
    offline: Offline,
) -> None:
    texts = [TEXTS[0], "\ud800", "", TEXTS[1]]
    outcomes = offline.begin(texts, template_of({})).result()
    alone = [offline.begin([text], template_of({})).result()[0] for text in texts]
    assert [type(outcome) for outcome in outcomes] == [type(outcome) for outcome in alone]
    for index in (0, 3):
        assert outcomes[index].hypotheses == alone[index].hypotheses  # type: ignore[union-attr]
    assert [outcomes[index].field for index in (1, 2)] == ["source"] * 2  # type: ignore[union-attr]
