import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import generation, scoring

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.events import Finished, Hypothesis, StopReason, TargetScored
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.queue.fair_queue import MAX_NORMAL_IN_A_ROW
from seqserve_server.engine.queue.score_queue import MAX_SCORE_BATCH, ScoreQueue
from seqserve_server.engine.request import Request, RequestState

PATIENCE_S = 60.0
OPTIONS = DecodingOptions(max_decoding_length=9)
ANSWER = Finished([Hypothesis([6], -1.0, StopReason.EOS)])
EOS = 2


def target(client: str = "", *, length: int = 1, **more: Any) -> Request:
    return scoring([5] * (length - 1) + [EOS], [6, EOS], client_id=client, **more)


def answer(**more: Any) -> Request:
    return generation([5, EOS], OPTIONS, answer=ANSWER, **more)


@pytest.fixture
def waiting() -> ScoreQueue:
    return ScoreQueue(QueueLimits(max_queue=99))


def submitted(waiting: ScoreQueue, *requests: Request) -> list[Request]:
    for request in requests:
        waiting.submit(request)
    return list(requests)


def refusal(waiting: ScoreQueue, *requests: Request) -> QueueFull:
    with pytest.raises(QueueFull) as full:
        submitted(waiting, *requests)
    return full.value


def taken(waiting: ScoreQueue) -> list[Request]:
    return waiting.take(0.0)


def finish(waiting: ScoreQueue, requests: list[Request]) -> None:
    waiting.finish([(request, TargetScored([], [])) for request in requests])


def test_scores_go_together_and_attention_alone(waiting: ScoreQueue) -> None:
    scores = submitted(waiting, *(target() for _ in range(MAX_SCORE_BATCH + 2)))
    shown = submitted(waiting, target(wants_attention=True), target(wants_attention=True))
    last = submitted(waiting, target())
    assert waiting.queue_depth == MAX_SCORE_BATCH + 5
    runs = [taken(waiting) for _ in range(5)]
    assert runs == [scores[:MAX_SCORE_BATCH], scores[MAX_SCORE_BATCH:], shown[:1], shown[1:], last]
    assert waiting.queue_depth == 0 and taken(waiting) == []


def test_bounds_are_those_of_any_queue() -> None:
    waiting = ScoreQueue(QueueLimits(max_queue=4, max_queue_tokens=12, caller_share=0.5))
    submitted(waiting, target("a"), target("a"))
    refused = refusal(waiting, target("a"), target("a"))
    assert refused.bound is Bound.CALLER and refused.retry_after_s > 0
    assert refusal(waiting, target("b", length=11)).bound is Bound.TOKENS
    submitted(waiting, target("b"))
    assert refusal(waiting, target("c"), target("d")).bound is Bound.LENGTH


def test_answers_go_first_and_are_not_bounded() -> None:
    waiting = ScoreQueue(QueueLimits(max_queue=2))
    targets = submitted(waiting, target(), target())
    answers = [answer() for _ in range(4)]
    submitted(waiting, *answers)
    assert waiting.queue_depth == 6
    assert [taken(waiting) for _ in answers] == [[request] for request in answers]
    assert taken(waiting) == targets


def test_targets_are_not_starved_by_answers(waiting: ScoreQueue) -> None:
    [scored] = submitted(waiting, target())
    runs = 0
    while True:
        waiting.submit(answer())
        runs += 1
        if taken(waiting) == [scored]:
            break
    assert runs == MAX_NORMAL_IN_A_ROW + 1
    # The count starts again.
    submitted(waiting, answer())
    [scored] = submitted(waiting, target())
    assert taken(waiting) != [scored]


def test_waiting_requests_can_be_cancelled(waiting: ScoreQueue) -> None:
    gone, kept = submitted(waiting, target(), target())
    [answered] = submitted(waiting, answer())
    for request in (gone, answered):
        assert waiting.cancel(request)
        assert not waiting.cancel(request)
    assert taken(waiting) == [kept]
    assert not waiting.cancel(kept), "it runs"
    finish(waiting, [kept])
    assert not waiting.cancel(kept), "it has ended"
    assert not waiting.cancel(target()), "it never was here"


@pytest.mark.parametrize(
    ("wake", "requests"),
    [
        pytest.param(lambda waiting: waiting.submit(target()), 1, id="target"),
        pytest.param(lambda waiting: waiting.submit(answer()), 1, id="answer"),
        pytest.param(ScoreQueue.stop, 0, id="end"),
    ],
)
def test_waiting_scorer_is_woken(
    waiting: ScoreQueue, wake: Callable[[ScoreQueue], object], requests: int
) -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(len(waiting.take(PATIENCE_S))))
    thread.start()
    wake(waiting)
    thread.join(PATIENCE_S)
    assert found == [requests]


class Clocked:
    """A queue whose clock is set by hand; each run of the scorer takes a second."""

    def __init__(self, **bounds: Any) -> None:
        self.now_s = 0.0
        self.waiting = ScoreQueue(QueueLimits(max_queue=99, **bounds), clock=lambda: self.now_s)

    def run(self) -> list[Request]:
        requests = taken(self.waiting)
        self.now_s += 1.0
        self.waiting.finish(
            [(one, TargetScored([], []) if one.answer is None else ANSWER) for one in requests]
        )
        return requests


@pytest.mark.parametrize("together", [1, 4, MAX_SCORE_BATCH])
def test_wait_is_estimated_from_the_duration_of_passes(together: int) -> None:
    clocked = Clocked(max_queue_s=2.5)
    for _ in range(8):
        submitted(clocked.waiting, *(target(str(n)) for n in range(together)))
        clocked.run()
    submitted(clocked.waiting, target("busy"))
    assert len(taken(clocked.waiting)) == 1
    # As many as two and a half passes serve.
    most = int(2.5 * together) + 1
    submitted(clocked.waiting, *(target(f"new {n}") for n in range(most)))
    refused = refusal(clocked.waiting, target("another"))
    assert refused.bound is Bound.WAIT
    assert refused.retry_after_s == pytest.approx(most / together)


def test_answers_between_passes_are_part_of_the_wait() -> None:
    clocked = Clocked(max_queue_s=2.5)
    for _ in range(8):
        submitted(clocked.waiting, target())
        clocked.waiting.submit(answer())
        clocked.run()
        clocked.run()
    submitted(clocked.waiting, target("busy"))
    taken(clocked.waiting)
    submitted(clocked.waiting, target("a"), target("b"))
    assert refusal(clocked.waiting, target("c")).retry_after_s == pytest.approx(4.0)


def test_idle_time_is_not_part_of_the_wait() -> None:
    clocked = Clocked(max_queue_s=2.5)
    for _ in range(8):
        submitted(clocked.waiting, target())
        clocked.run()
        clocked.now_s += 1000.0
    submitted(clocked.waiting, target("busy"))
    taken(clocked.waiting)
    # The time before a request arrives is not part of its wait.
    clocked.now_s += 0.5
    submitted(clocked.waiting, target("a"), target("b"), target("c"))
    assert refusal(clocked.waiting, target("d")).retry_after_s == pytest.approx(3.0)


def test_clients_that_have_left_are_forgotten(waiting: ScoreQueue) -> None:
    first, second, third = submitted(
        waiting, target("a"), target("b"), target("c", wants_attention=True)
    )
    waiting.cancel(third)
    finish(waiting, taken(waiting))
    assert {first.state, second.state, third.state} == {RequestState.DONE}
    assert_idle(waiting)
