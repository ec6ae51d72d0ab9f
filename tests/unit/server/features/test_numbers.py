from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import echo_model
from tests.unit.server.front.generate.asking import TO_GERMAN as MODEL
from tests.unit.server.front.generate.asking import TOKENIZER, asked, compiled, part, read

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.options import Sampling
from seqserve_server.features.numbers import MOST_LISTED, numbers
from seqserve_server.front.generate.records import Feature, Link, Part, message_of
from seqserve_server.text.quantities.comparison import Difference
from seqserve_server.text.splitting import Span

SOURCE = "Order 85642 of 20 July"


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text)[:-1]


def check(**options: Any) -> Feature:
    feature = numbers(asked(model=MODEL, **options))
    assert feature is not None
    return feature


def answer(text: str, score: float | None = -1.0) -> Finished:
    return Finished([Hypothesis(ids(text), score, StopReason.EOS)])


def written(text: str, source: str = SOURCE, **fields: Any) -> generation_pb2.Hypothesis:
    message = generation_pb2.Hypothesis(text=text, confidence=0.8, **fields)
    check().write(part(source), answer(text).best, message)
    return message


def test_only_sources_with_a_digit_are_checked() -> None:
    options = compiled(MODEL)
    checks = [read(text, MODEL).parts[0].check for text in ("Two dogs.", "2 dogs.", "٢ dogs.")]
    assert options.features == () and options.check is not None
    assert checks == [None, options.check, options.check]


def test_a_model_without_languages_is_checked_on_request() -> None:
    plain = echo_model()
    assert numbers(asked(model=plain)) is None
    assert numbers(asked(model=plain, verify_numbers=True)) is not None
    assert numbers(asked(model=plain, target_language="de")) is not None


def test_a_difference_is_listed_and_halves_the_confidence() -> None:
    message = written("Bestellung 20. Juli 1234")
    assert message.confidence == pytest.approx(0.4)
    kind = generation_pb2.TEXT_WARNING_KIND_NUMBERS_DIFFER
    source = {"source_text": "85642", "source_begin": 6, "source_end": 11}
    target = {"target_text": "1234", "target_begin": 20, "target_end": 24}
    assert list(message.warnings) == [generation_pb2.TextWarning(kind=kind, **source, **target)]


def test_an_answer_that_says_the_same_stays() -> None:
    message = written("Bestellung 85642 vom 20. Juli")
    assert not message.warnings and message.confidence == pytest.approx(0.8)
    # What a stop sequence cuts off is not missed.
    assert not written("", stop_reason=generation_pb2.STOP_REASON_STOP_SEQUENCE).warnings


def test_the_alignment_gives_the_place_of_what_is_missing() -> None:
    links = [Link(Span(6, 9), Span(11, 13)), Link(Span(9, 11), Span(14, 16))]
    [warning] = written("Bestellung vom 20. Juli", alignment=message_of(links)).warnings
    assert (warning.target_text, warning.target_begin, warning.target_end) == ("", 11, 16)


def test_the_list_is_bounded() -> None:
    source = " ".join(str(number) for number in range(1000, 1100))
    message = written("nichts", source + "7" * 300)
    assert len(message.warnings) == MOST_LISTED
    plain = generation_pb2.Hypothesis(text="nichts", confidence=0.8)
    assert message.ByteSize() - plain.ByteSize() <= check().max_bytes(part(source))


def again(source: str, target: str) -> Part | None:
    return check(verify_numbers=True).second_try(part(source), answer(target))


def test_what_is_missing_becomes_a_term_of_the_second_try() -> None:
    second = again(SOURCE, "Bestellung vom 20. Juli")
    assert second is not None
    decoding = second.decoding
    assert decoding.terms == (tuple(ids("85642")),) and decoding.beam_size == 8
    # 85642 is not part of a longer number.
    assert (*ids("85642"), *ids("7")) in decoding.suppressed


@pytest.mark.parametrize(
    ("source", "target"),
    [(SOURCE, "85642 am 20. Juli"), ("Order 5", "Bestellung 5, 6"), ("5 " * 40, "nichts")],
)
def test_without_anything_missing_or_room_for_it_there_is_none(source: str, target: str) -> None:
    assert again(source, target) is None


def test_an_answer_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def differences(source: str, target: str, *languages: str) -> list[Difference]:
        compared.append(target)
        return []

    monkeypatch.setattr(f"{numbers.__module__}.differences", differences)
    feature, text = check(verify_numbers=True), "85642 am 20. Juli"
    assert feature.second_try(part(SOURCE), answer(text)) is None
    feature.write(part(SOURCE), answer(text).best, generation_pb2.Hypothesis(text=text))
    assert compared == [text]


def test_a_search_without_terms_or_the_option_is_not_repeated() -> None:
    plain = asked().decoding
    for decoding in (
        replace(plain, sampling=Sampling(1.0, 0, 1.0, 0.0, 7)),
        replace(plain, return_alternatives=True),
        replace(plain, prefix_bias_beta=0.5),
    ):
        feature = numbers(asked(decoding, MODEL, verify_numbers=True))
        assert feature and feature.second_try(part(SOURCE), answer("nichts")) is None
    assert check().second_try(part(SOURCE), answer("nichts")) is None
    # What is protected is not missed.
    kept = part("Order KX7 now")._replace(protected=[Span(6, 9)])
    assert check(verify_numbers=True).second_try(kept, answer("Bestellung")) is None


def test_the_answer_that_differs_less_is_better_unless_it_is_far_less_probable() -> None:
    feature, source = check(), part(SOURCE)
    right, wrong = "85642 vom 20. Juli", "vom 20. Juli"
    assert feature.is_better(source, answer(wrong), answer(right))
    assert not feature.is_better(source, answer(right), answer(wrong))
    assert not feature.is_better(source, answer(wrong), answer(wrong))
    assert not feature.is_better(source, answer(wrong), answer(right, score=-40.0))
    assert feature.is_better(source, answer(wrong, None), answer(right, None))
