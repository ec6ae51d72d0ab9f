from collections.abc import Sequence

import pytest

from seqserve.v1 import generation_pb2 as pb
from seqserve_server.front.generate.joined import composed

NAMES = ("source_begins", "source_ends", "target_begins", "target_ends")
Place = tuple[int, int, int, int]
"""Where a source token begins and ends, then where a target token does."""


def alignment(places: Sequence[Place]) -> pb.Alignment:
    columns = zip(*places, strict=True) if places else [(), (), (), ()]
    return pb.Alignment(**dict(zip(NAMES, columns, strict=True)))


def places(message: pb.Alignment) -> list[Place]:
    columns = [getattr(message, name) for name in NAMES]
    return list(zip(*columns, strict=True))


def answer(text: str, *aligned: Place, confidence: float | None = 0.5) -> pb.GenerateResponse:
    hypothesis = pb.Hypothesis(text=text, alignment=alignment(aligned), confidence=confidence)
    timings = pb.Timings(queue_ms=1, encode_ms=2, decode_ms=3, first_token_ms=4, total_ms=5)
    return pb.GenerateResponse(
        model="m", hypotheses=[hypothesis], source_tokens=7, generated_tokens=8, timings=timings
    )


def test_a_place_is_where_the_text_between_comes_from() -> None:
    # "커피 좋다" → "coffee is good" → "Kaffee ist gut"
    first = answer("coffee is good", (0, 2, 0, 6), (3, 5, 7, 9), (3, 5, 10, 14))
    second = answer("Kaffee ist gut", (0, 6, 0, 6), (7, 9, 7, 10), (10, 14, 11, 14))
    [hypothesis] = composed(first, second).hypotheses
    assert places(hypothesis.alignment) == [(0, 2, 0, 6), (3, 5, 7, 10), (3, 5, 11, 14)]


@pytest.mark.parametrize(
    ("first", "second", "composed_places"),
    [
        # Of several tokens the one with most characters in common counts.
        ([(0, 1, 0, 2), (1, 2, 2, 6)], [(1, 5, 0, 1)], [(1, 2, 0, 1)]),
        # A token from nowhere is left out.
        ([(0, 2, 0, 2)], [(0, 2, 0, 1), (3, 5, 2, 3)], [(0, 2, 0, 1)]),
    ],
)
def test_places_are_found_by_characters(
    first: list[Place], second: list[Place], composed_places: list[Place]
) -> None:
    result = composed(answer("abcdef", *first), answer("x y", *second))
    assert places(result.hypotheses[0].alignment) == composed_places


def test_places_in_segments_of_the_text_between_count_from_where_they_begin() -> None:
    first = answer("Ab. Cd.", (0, 1, 0, 2), (2, 3, 4, 6))
    second, segment = answer("Xy. Xy."), answer("Xy.", (0, 2, 0, 2)).hypotheses
    for begin in (0, 4):
        second.segments.add(source_begin=begin, target_begin=begin, hypotheses=segment)
    result = composed(first, second)
    assert places(result.hypotheses[0].alignment) == [(0, 1, 0, 2), (2, 3, 4, 6)]
    assert not result.segments


def test_confidences_multiply_and_the_counts_are_those_of_the_ends() -> None:
    first, second = answer("a", confidence=0.8), answer("b", confidence=0.5)
    first.source_tokens, second.source_tokens = 3, 4
    first.source_warnings.append(pb.SOURCE_WARNING_MARKUP)
    second.source_warnings.append(pb.SOURCE_WARNING_OTHER_SCRIPT)
    result = composed(first, second)
    assert result.hypotheses[0].confidence == pytest.approx(0.4)
    assert (result.source_tokens, result.generated_tokens) == (3, 8)
    assert list(result.source_warnings) == [pb.SOURCE_WARNING_MARKUP]
    assert (result.timings.queue_ms, result.timings.encode_ms) == (1, 4)
    assert second.hypotheses[0].confidence == pytest.approx(0.5)
    # Without scores there is none.
    result = composed(answer("a", confidence=None), answer("b", confidence=None))
    assert not result.hypotheses[0].HasField("confidence")


def test_warnings_of_both_models_have_no_place_in_the_text_between() -> None:
    first, second = answer("a"), answer("b")
    lost = {"source_text": "7", "source_begin": 3, "source_end": 4}
    added = {"target_text": "8", "target_begin": 5, "target_end": 6}
    for each in (first, second):
        each.hypotheses[0].warnings.add(**lost, **added)
    [hypothesis] = composed(first, second).hypotheses
    first_warning = pb.TextWarning(**lost, target_text="8")
    assert list(hypothesis.warnings) == [first_warning, pb.TextWarning(source_text="7", **added)]
