import asyncio
from dataclasses import replace
from typing import Any, cast
from unittest import mock

import pytest
from tests.unit.server.front.generate.asking import TO_GERMAN as MODEL
from tests.unit.server.front.generate.asking import TOKENIZER, compiled, job_of, read

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import QueueFull, ServiceError
from seqserve_server.contract.events import Failed, Finished, Hypothesis, StopReason, Timeline
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.generate import answer as answering

Term = generation_pb2.Term


class TryingEngine:
    """Answers the first request at once with one text, later ones with another or an error."""

    pending = 0

    def __init__(self, first: str, second: str | Exception, second_score: float) -> None:
        self._first, self._second, self._scores = first, second, (-1.0, second_score)
        self.tries = 0

    def submit(self, spec: Any, receive: Receive) -> int:
        self.tries += 1
        text = self._first if self.tries == 1 else self._second
        if isinstance(text, ServiceError):
            receive(Failed(text), None)
            return self.tries
        terms = spec.options.terms
        unmet = [len(terms) - 1] if terms else []
        tokens = TOKENIZER.encode(str(text))[:-1]
        score = self._scores[self.tries > 1] if spec.options.return_scores else None
        best = Hypothesis(tokens, score, StopReason.EOS, unmet_terms=unmet)
        receive(Finished([best]), Timeline())
        return self.tries


def answered(
    source: str, target: str, second: str | Exception, score: float = -1.0, **sent: Any
) -> tuple[generation_pb2.Hypothesis, int]:
    """Answers a source; returns its hypothesis, and how often it was decoded."""
    options = compiled(MODEL, **sent)
    engine = TryingEngine(target, second, score)
    model = replace(MODEL, engine=cast(Any, engine))
    job = job_of(model, options, read(source, MODEL, **sent))

    async def answer() -> generation_pb2.GenerateResponse:
        return await answering.answer(job, job.sources[0])

    return asyncio.run(answer()).hypotheses[0], engine.tries


def test_the_better_answer_is_sent() -> None:
    best, tries = answered("Order 85642", "Order", "Nummer 85642", verify_numbers=True)
    assert (best.text, len(best.warnings), tries) == ("Nummer 85642", 0, 2)


@pytest.mark.parametrize("second", ["nichts", "Order 8564", QueueFull("full", 0.1)])
def test_otherwise_the_first_answer_stays(second: str | Exception) -> None:
    best, tries = answered("Order 85642", "Order", second, verify_numbers=True)
    assert (best.text, len(best.warnings), tries) == ("Order", 1, 2)


@pytest.mark.parametrize("returned", [True, False])
def test_improbable_answer_is_no_better_whether_scores_are_returned(returned: bool) -> None:
    sent = {"verify_numbers": True, "return_scores": returned}
    best, tries = answered("Order 85642", "Order", "85642", -9.0, **sent)
    assert (best.text, tries, best.HasField("score")) == ("Order", 2, returned)


@pytest.mark.parametrize(("target", "sent"), [("85642", {"verify_numbers": True}), ("nichts", {})])
def test_nothing_is_decoded_again_without_a_reason(target: str, sent: dict[str, Any]) -> None:
    assert answered("Order 85642", target, "never", **sent) == (mock.ANY, 1)


def test_a_term_of_the_second_try_is_no_unmet_term_of_the_request() -> None:
    terms = [Term(source="Order", target="Auftrag")]
    best, tries = answered("Order 85642", "", "85642", verify_numbers=True, terms=terms)
    assert (best.text, list(best.unmet_terms), tries) == ("85642", [], 2)


def test_places_count_from_the_whole_text() -> None:
    source = "Order 5.  Room 85642."
    best, _ = answered(source, "Zimmer 7.", "Zimmer 7.", segmentation="sentences")
    assert best.text == "Zimmer 7.  Zimmer 7."
    places = [
        (source[each.source_begin : each.source_end], best.text[: each.target_begin])
        for each in best.warnings
    ]
    assert places == [("5", "Zimmer "), ("85642", "Zimmer 7.  Zimmer ")]
