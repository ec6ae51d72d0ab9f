from typing import Any
from unittest import mock

import pytest
from tests.unit.server.front.generate.asking import TO_GERMAN as MODEL
from tests.unit.server.front.generate.asking import (
    TOKENIZER,
    AnsweringEngine,
    answered,
    compiled,
    read,
)

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import QueueFull, ServiceError
from seqserve_server.contract.events import Event, Failed, Finished, Hypothesis, StopReason

Term = generation_pb2.Term


def tried(
    source: str, target: str, second: str | ServiceError, score: float = -1.0, **sent: Any
) -> tuple[generation_pb2.Hypothesis, int]:
    """Answers a source first with one text and then with another or an error, of this score.

    Gives its hypothesis, and how often it was decoded.
    """

    def reply(spec: Any) -> Event:
        is_first = len(engine.specs) == 1
        text = target if is_first else second
        if isinstance(text, ServiceError):
            return Failed(text)
        terms = spec.options.terms
        unmet = [len(terms) - 1] if terms else []
        scored = (-1.0 if is_first else score) if spec.options.return_scores else None
        tokens = TOKENIZER.encode(text)[:-1]
        return Finished([Hypothesis(tokens, scored, StopReason.EOS, unmet_terms=unmet)])

    engine = AnsweringEngine(reply)
    response = answered(MODEL, engine, compiled(MODEL, **sent), read(source, MODEL, **sent))
    return response.hypotheses[0], len(engine.specs)


def test_the_better_answer_is_sent() -> None:
    best, tries = tried("Order 85642", "Order", "Nummer 85642", verify_numbers=True)
    assert (best.text, len(best.warnings), tries) == ("Nummer 85642", 0, 2)


@pytest.mark.parametrize("second", ["nichts", "Order 8564", QueueFull("full", 0.1)])
def test_otherwise_the_first_answer_stays(second: str | ServiceError) -> None:
    best, tries = tried("Order 85642", "Order", second, verify_numbers=True)
    assert (best.text, len(best.warnings), tries) == ("Order", 1, 2)


@pytest.mark.parametrize("returned", [True, False])
def test_improbable_answer_is_no_better_whether_scores_are_returned(returned: bool) -> None:
    sent = {"verify_numbers": True, "return_scores": returned}
    best, tries = tried("Order 85642", "Order", "85642", -9.0, **sent)
    assert (best.text, tries, best.HasField("score")) == ("Order", 2, returned)


@pytest.mark.parametrize(("target", "sent"), [("85642", {"verify_numbers": True}), ("nichts", {})])
def test_nothing_is_decoded_again_without_a_reason(target: str, sent: dict[str, Any]) -> None:
    assert tried("Order 85642", target, "never", **sent) == (mock.ANY, 1)


def test_a_term_of_the_second_try_is_no_unmet_term_of_the_request() -> None:
    terms = [Term(source="Order", target="Auftrag")]
    best, tries = tried("Order 85642", "", "85642", verify_numbers=True, terms=terms)
    assert (best.text, list(best.unmet_terms), tries) == ("85642", [], 2)


def test_places_count_from_the_whole_text() -> None:
    source = "Order 5.  Room 85642."
    best, _ = tried(source, "Zimmer 7.", "Zimmer 7.", segmentation="sentences")
    assert best.text == "Zimmer 7.  Zimmer 7."
    places = [
        (source[each.source_begin : each.source_end], best.text[: each.target_begin])
        for each in best.warnings
    ]
    assert places == [("5", "Zimmer "), ("85642", "Zimmer 7.  Zimmer ")]
