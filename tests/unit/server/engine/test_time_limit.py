import math
import time
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import generation
from tests.unit.server.engine.stepper import Stepper

from seqserve_server.contract.errors import DeadlinePassed, Stage
from seqserve_server.contract.events import (
    Failed,
    Finished,
    Hypothesis,
    Progress,
    StopReason,
)
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.request import Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer

SOURCE = [40, 41, 42, 300, 9, 2]
LIMIT_S = 1000.0
SAMPLING = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=7)
NO_END = {"suppressed": ((2,),)}
PREFIX = (19, 226, 15)


class LimitStepper(Stepper):
    """A worker of the tiny model; all requests have one source."""

    def submit(  # type: ignore[override]
        self, *, streamed: bool = False, deadline_s: float | None = None, **options: Any
    ) -> Request:
        made = DecodingOptions(**{"max_decoding_length": 20} | options)
        request = generation(SOURCE, made, streamed=streamed, deadline_s=deadline_s)
        self.scheduler.submit(request)
        return request

    def last_step(self, limits: int = 1) -> None:
        """Runs one more step, at the end of which ``limits`` times the limit has passed."""
        self.step_at(time.monotonic() + (limits + 1) * LIMIT_S)

    def hypotheses(self, request: Request) -> list[Hypothesis]:
        last = self.events_of(request)[-1]
        assert isinstance(last, Finished)
        return last.hypotheses

    def run(self, **options: Any) -> list[Hypothesis]:
        """Gives the answer of a request that has all the time it needs."""
        request = self.submit(**options)
        self.finish()
        return self.hypotheses(request)


@pytest.fixture
def stepper(tiny_runtime: Runtime, tiny_tokenizer: Tokenizer) -> LimitStepper:
    return LimitStepper(slots=8, runtime=tiny_runtime, decode=tiny_tokenizer.decode)


def as_cut(hypothesis: Hypothesis) -> Hypothesis:
    """Replaces the stop reason LENGTH by TIME_LIMIT."""
    assert hypothesis.stop_reason is StopReason.LENGTH
    return hypothesis._replace(stop_reason=StopReason.TIME_LIMIT)


@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize(
    "options",
    [
        NO_END,
        NO_END | {"return_token_scores": True, "return_top_tokens": 3},
        NO_END | {"sampling": SAMPLING, "num_hypotheses": 3},
        NO_END | {"return_alternatives": True, "num_hypotheses": 3},
        NO_END | {"beam_size": 3, "num_hypotheses": 2},
        NO_END | {"beam_size": 4, "num_hypotheses": 4, "return_token_scores": True},
        NO_END | {"beam_size": 2, "return_alternatives": True, "num_hypotheses": 3},
    ],
)
def test_answer_at_the_time_limit_equals_one_of_that_length(
    stepper: LimitStepper, options: dict[str, Any], steps: int
) -> None:
    limited = stepper.submit(time_limit_s=LIMIT_S, **options)
    other = stepper.submit(max_decoding_length=9, **NO_END)
    stepper.step(steps - 1)
    stepper.last_step()
    found = stepper.hypotheses(limited)
    assert stepper.scheduler.running == 1, "its slots are free"
    expected = stepper.run(max_decoding_length=steps, **options)
    assert found == [as_cut(each) for each in expected]
    stepper.finish()
    assert stepper.hypotheses(other) == stepper.run(max_decoding_length=9, **NO_END)


@pytest.mark.parametrize(
    ("options", "hypotheses"),
    [
        ({"beam_size": 4, "num_hypotheses": 2}, 2),
        ({"beam_size": 4, "num_hypotheses": 2, "coverage_penalty": 0.5}, 2),
        ({"sampling": SAMPLING, "num_hypotheses": 3}, 3),
        ({"beam_size": 2, "return_alternatives": True, "num_hypotheses": 3}, 3),
    ],
)
def test_cancelled_request_has_the_tokens_of_the_answer(
    stepper: LimitStepper, options: dict[str, Any], hypotheses: int
) -> None:
    request = stepper.submit(**NO_END, **options)
    stepper.step(4)
    stepper.scheduler.cancel(request)
    stepper.step()
    assert request.tokens_done == 4 * hypotheses
    assert not stepper.events_of(request)


def test_sample_that_has_ended_comes_first(stepper: LimitStepper) -> None:
    options: dict[str, Any] = {
        "sampling": SAMPLING,
        "num_hypotheses": 8,
        "end_ids": (2, *range(99)),
    }
    limited = stepper.submit(time_limit_s=LIMIT_S, **options)
    stepper.step(2)
    stepper.last_step()
    reasons = [each.stop_reason for each in stepper.hypotheses(limited)]
    assert len(reasons) == 8
    assert reasons.index(StopReason.TIME_LIMIT) > 0
    assert set(reasons[: reasons.index(StopReason.TIME_LIMIT)]) == {StopReason.EOS}


def test_beam_within_its_prefix_is_one_hypothesis(stepper: LimitStepper) -> None:
    limited = stepper.submit(time_limit_s=LIMIT_S, beam_size=3, num_hypotheses=3, prefix=PREFIX)
    stepper.step()
    stepper.last_step()
    [found] = stepper.hypotheses(limited)
    assert found.token_ids == list(PREFIX[:2])


def test_request_that_never_began_has_no_tokens_and_meets_no_term(
    stepper: LimitStepper,
) -> None:
    limited = stepper.submit(time_limit_s=LIMIT_S)
    with_terms = stepper.submit(time_limit_s=LIMIT_S, beam_size=2, terms=((226, 15), (19,)))
    stepper.last_step()
    empty = Hypothesis([], None, StopReason.TIME_LIMIT)
    assert stepper.events_of(limited) == [Finished([empty])]
    [found] = stepper.hypotheses(with_terms)
    assert (found.token_ids, list(found.unmet_terms)) == ([], [0, 1])
    assert limited.timeline.encode_began_s == 0.0 < limited.timeline.finished_s


def test_deadline_goes_before_the_time_limit(stepper: LimitStepper) -> None:
    waiting = stepper.submit(time_limit_s=LIMIT_S, deadline_s=time.monotonic() + LIMIT_S)
    stepper.last_step()
    [failed] = stepper.events_of(waiting)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, DeadlinePassed) and failed.error.where is Stage.QUEUE


def test_streamed_tokens_at_the_limit_are_those_of_the_answer(stepper: LimitStepper) -> None:
    limited = stepper.submit(streamed=True, time_limit_s=LIMIT_S, **NO_END)
    stepper.step(3)
    stepper.last_step()
    *pieces, _ = stepper.events_of(limited)
    streamed = [word for piece in pieces if isinstance(piece, Progress) for word in piece.token_ids]
    [found] = stepper.hypotheses(limited)
    assert found.token_ids[:-1] == streamed, "the last token comes with the answer"


def test_request_that_ends_in_time_is_complete(stepper: LimitStepper) -> None:
    expected = stepper.run(max_decoding_length=2)
    limited = stepper.submit(max_decoding_length=2, time_limit_s=LIMIT_S)
    stepper.step()
    stepper.last_step()
    assert stepper.hypotheses(limited) == expected
    assert_idle(stepper.scheduler)


def test_time_limits_of_other_requests_stay(stepper: LimitStepper) -> None:
    soon = stepper.submit(time_limit_s=LIMIT_S, **NO_END)
    later = stepper.submit(time_limit_s=9 * LIMIT_S, **NO_END)
    stepper.step(2)
    stepper.last_step()
    assert len(stepper.events_of(soon)) == 1 and not stepper.events_of(later)
    stepper.last_step(9)
    assert len(stepper.events_of(later)) == 1
    assert replace(later.options, time_limit_s=math.inf).is_plain == later.options.is_plain
