from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from seqserve_model.transformer import AttentionRecord, Transformer
from seqserve_server.engine.request import (
    DecodingOptions,
    Event,
    Failed,
    Finished,
    Hypothesis,
    Request,
    StopReason,
    Taught,
)
from seqserve_server.engine.teacher import Teacher
from seqserve_server.errors import DeadlinePassed, Draining, EngineFault, QueueFull, Stage
from seqserve_server.runtime import Runtime

BOS, EOS, WORDS = 1, 2, 384
PATIENCE_S = 30.0
OPTIONS = DecodingOptions(max_decoding_length=20)

PAIRS = [
    ([EOS], [EOS]),
    ([5, EOS], [19, EOS]),
    ([5, 6, 7, EOS], [19]),
    ([300, 20, 9, 9, EOS], [19, 226, 15, 19, 226, EOS]),
    ([*range(40, 63), EOS], [*range(100, 120), EOS]),
    ([*range(40, 62), EOS], [*range(101, 118), EOS]),
]


class Classroom:
    """A teacher, and all it told."""

    def __init__(self, runtime: Any, max_queue: int = 9) -> None:
        self.told: list[tuple[Request, Event]] = []
        self._changed = threading.Condition()
        self.teacher = Teacher(runtime, max_queue, self._tell)

    def _tell(self, request: Request, event: Event) -> None:
        with self._changed:
            self.told.append((request, event))
            self._changed.notify()

    def submit(self, source: list[int], target: list[int], **more: Any) -> Request:
        request = make_request(source, target=target, **more)
        self.teacher.submit(request)
        return request

    def event(self, request: Request) -> Event:
        """Waits for what a request is told."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._events(request), PATIENCE_S)
        [event] = self._events(request)
        return event

    def _events(self, request: Request) -> list[Event]:
        return [event for owner, event in self.told if owner is request]


def make_request(source: list[int], options: DecodingOptions = OPTIONS, **more: Any) -> Request:
    return Request(source=source, options=options, receive=lambda event: None, **more)


@pytest.fixture
def idle(tiny_runtime: Runtime) -> Iterator[Classroom]:
    """One that has not begun."""
    room = Classroom(tiny_runtime)
    yield room
    room.teacher.stop()


@pytest.fixture
def room(idle: Classroom) -> Classroom:
    idle.teacher.start()
    return idle


@torch.inference_mode()
def taught(
    model: Transformer, source: list[int], target: list[int]
) -> tuple[list[float], list[np.ndarray[Any, Any]]]:
    """Reads a target in one pass: the log-probability of each token, and all that it attended."""
    record = AttentionRecord()
    lengths = torch.tensor([len(source)])
    memory = model.encode(torch.tensor([source]), lengths, record)
    begun = torch.tensor([[BOS, *target[:-1]]])
    features = model.advance(begun, model.begin(memory, lengths), record)
    found = model.project(features).log_softmax(-1)[0]
    scores = [float(found[place, word]) for place, word in enumerate(target)]
    parts = (record.encoder, record.decoder, record.cross)
    return scores, [torch.stack(layers)[:, 0].numpy() for layers in parts]


def weights_of(data: bytes, *shape: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, np.float32).reshape(shape)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_scores_are_those_of_torch(
    room: Classroom, tiny_model: Transformer, source: list[int], target: list[int]
) -> None:
    event = room.event(room.submit(source, target))
    assert isinstance(event, Taught)
    assert event.token_scores == pytest.approx(taught(tiny_model, source, target)[0], abs=1e-4)
    assert event.weights == []


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_attention_is_that_of_torch(
    room: Classroom, tiny_model: Transformer, source: list[int], target: list[int]
) -> None:
    event = room.event(room.submit(source, target, weighed=True))
    assert isinstance(event, Taught)
    scores, ought = taught(tiny_model, source, target)
    assert event.token_scores == pytest.approx(scores, abs=1e-4)
    read, written, heads = len(source), len(target), tiny_model.config.heads
    shapes = [(2, heads, read, read), (1, heads, written, written), (1, heads, written, read)]
    for data, shape, theirs in zip(event.weights, shapes, ought, strict=True):
        ours = weights_of(data, *shape)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        np.testing.assert_allclose(ours.sum(-1), 1.0, atol=1e-5)
    own = weights_of(event.weights[1], *shapes[1])
    assert not np.triu(own, 1).any(), "a word looks ahead"


def test_attention_of_an_answer_is_the_mean_over_the_last_layers_heads(
    room: Classroom, tiny_model: Transformer
) -> None:
    source, words = [5, 6, 7, EOS], [19, 226, 15]
    request = make_request(source, replace(OPTIONS, return_attention=True))
    whole = Hypothesis(words, -3.0, StopReason.EOS, token_scores=[-1.0] * 4, text_length=None)
    other = Hypothesis([19], -1.0, StopReason.LENGTH)
    room.teacher.annotate(request, Finished([whole, other]))
    event = room.event(request)
    assert isinstance(event, Finished)
    for found, plain in zip(event.hypotheses, (whole, other), strict=True):
        assert found._replace(attention=b"") == plain
        _, (_, _, cross) = taught(tiny_model, source, plain.token_ids)
        weights = weights_of(found.attention, len(plain.token_ids), len(source))
        np.testing.assert_allclose(weights, cross[-1].mean(0), atol=1e-5)
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("reason", StopReason)
def test_answer_without_a_word_attends_to_nothing(room: Classroom, reason: StopReason) -> None:
    request = make_request([5, EOS], replace(OPTIONS, return_attention=True))
    answer = Finished([Hypothesis([], -1.0, reason)])
    room.teacher.annotate(request, answer)
    assert room.event(request) == answer


@pytest.mark.parametrize("shown", [False, True])
def test_hypotheses_are_ranked_by_what_they_cover_too(
    room: Classroom, tiny_model: Transformer, shown: bool
) -> None:
    source, wanted = [5, 6, 7, EOS], 3
    options = replace(
        OPTIONS,
        beam_size=4,
        coverage_penalty=0.5,
        num_hypotheses=wanted,
        return_attention=shown,
    )
    request = make_request(source, options)
    ended = [
        ([19, 226, 15], StopReason.EOS),
        ([19], StopReason.LENGTH),
        ([19], StopReason.EOS),
        ([226, 226, 226, 19, 15], StopReason.LENGTH),
    ]
    answer = Finished([Hypothesis(words, -5.0, reason, -1.0) for words, reason in ended])
    room.teacher.annotate(request, answer)
    event = room.event(request)
    assert isinstance(event, Finished)
    ranks, shares = {}, {}
    for one in answer.hypotheses:
        # What the end token attended to counts where it was said.
        target = [*one.token_ids, *([EOS] if one.stop_reason is StopReason.EOS else [])]
        _, (_, _, cross) = taught(tiny_model, source, target)
        shares[repr(one)] = cross[-1].mean(0)[: len(one.token_ids)]
        covered = np.log(np.minimum(cross[-1].mean(0).sum(0), 1.0)).sum()
        ranks[repr(one)] = -1.0 + 0.5 * float(covered)
    assert len(set(ranks.values())) == len(ended)
    best = sorted(ranks, key=lambda one: -ranks[one])[:wanted]
    found = [one._replace(normalized_score=-1.0, attention=b"") for one in event.hypotheses]
    assert [repr(one) for one in found] == best
    for one, name in zip(event.hypotheses, best, strict=True):
        assert one.normalized_score == pytest.approx(ranks[name], abs=1e-5)
        assert bool(one.attention) == shown
        if shown:
            weights = weights_of(one.attention, len(one.token_ids), len(source))
            np.testing.assert_allclose(weights, shares[name], atol=1e-5)


@pytest.mark.parametrize("weighed", [False, True])
def test_targets_that_wait_together_are_told_in_turn_as_alone(
    idle: Classroom, tiny_runtime: Runtime, weighed: bool
) -> None:
    requests = [idle.submit(source, target, weighed=weighed) for source, target in PAIRS]
    idle.teacher.start()
    together = [idle.event(request) for request in requests]
    assert [request for request, _ in idle.told] == requests
    for (source, target), event in zip(PAIRS, together, strict=True):
        one = Classroom(tiny_runtime)
        one.teacher.start()
        assert one.event(one.submit(source, target, weighed=weighed)) == event
        one.teacher.stop()


def test_target_that_cannot_be_run_is_told_so_and_the_next_one_is_run(
    room: Classroom, caplog: pytest.LogCaptureFixture
) -> None:
    broken = room.event(room.submit([5, EOS], [WORDS, EOS]))
    assert isinstance(broken, Failed)
    assert isinstance(broken.error, EngineFault)
    assert "a target could not be run" in caplog.text
    assert isinstance(room.event(room.submit([5, EOS], [6, EOS])), Taught)


def test_targets_that_wait_are_scored_together(idle: Classroom, monkeypatch: Any) -> None:
    sizes: list[int] = []
    teach = Runtime.teach

    def counted(self: Runtime, source: Any, *rest: Any) -> list[Any]:
        sizes.append(len(source))
        return teach(self, source, *rest)

    monkeypatch.setattr(Runtime, "teach", counted)
    scored = [idle.submit(*pair) for pair in PAIRS[:3]]
    weighed = idle.submit(*PAIRS[3], weighed=True)
    last = idle.submit(*PAIRS[4])
    idle.teacher.start()
    for request in (*scored, weighed, last):
        assert isinstance(idle.event(request), Taught)
    assert sizes == [3, 1, 1]


def test_only_the_culprit_fails_of_targets_that_wait_together(idle: Classroom) -> None:
    fine = idle.submit([5, EOS], [19, EOS])
    wrong = idle.submit([5, EOS], [WORDS + 1, EOS])
    also_fine = idle.submit([6, EOS], [19, EOS])
    idle.teacher.start()
    assert isinstance(idle.event(fine), Taught)
    assert isinstance(idle.event(wrong), Failed)
    assert isinstance(idle.event(also_fine), Taught)


def test_queue_is_bounded_for_targets_and_not_for_answers(tiny_runtime: Runtime) -> None:
    room = Classroom(tiny_runtime, max_queue=2)
    requests = [room.submit([5, EOS], [6, EOS]) for _ in "ab"]
    with pytest.raises(QueueFull) as caught:
        room.submit([5, EOS], [6, EOS])
    assert caught.value.retry_after_s > 0
    # A request that holds an answer has been let in already.
    answered = make_request([5, EOS])
    room.teacher.annotate(answered, Finished([Hypothesis([6], -1.0, StopReason.EOS)]))
    assert room.teacher.stop() == [*requests, answered]


def test_request_that_waits_can_be_cancelled(idle: Classroom) -> None:
    gone, kept = (idle.submit([5, EOS], [6, EOS]) for _ in "ab")
    assert idle.teacher.cancel(gone)
    assert not idle.teacher.cancel(gone)
    idle.teacher.start()
    assert isinstance(idle.event(kept), Taught)
    assert not idle.teacher.cancel(kept)
    assert [request for request, _ in idle.told] == [kept]


def test_answer_that_waits_can_be_cancelled(idle: Classroom) -> None:
    request = make_request([5, EOS])
    idle.teacher.annotate(request, Finished([Hypothesis([6], -1.0, StopReason.EOS)]))
    assert idle.teacher.cancel(request)
    assert idle.teacher.stop() == []


def test_request_that_is_late_is_not_run(room: Classroom) -> None:
    past_s = time.monotonic()
    late = make_request([5, EOS], target=[6, EOS], deadline_s=past_s)
    answered = make_request([5, EOS], deadline_s=past_s)
    early = make_request([5, EOS], target=[6, EOS], deadline_s=past_s + 1000)
    room.teacher.submit(late)
    room.teacher.annotate(answered, Finished([Hypothesis([6], -1.0, StopReason.EOS)]))
    room.teacher.submit(early)
    assert isinstance(room.event(early), Taught)
    for request, where in ((late, Stage.QUEUE), (answered, Stage.DECODE)):
        event = room.event(request)
        assert isinstance(event, Failed)
        assert isinstance(event.error, DeadlinePassed)
        assert event.error.where is where


def test_stop_gives_back_what_waits_and_takes_no_more(idle: Classroom) -> None:
    request = idle.submit([5, EOS], [6, EOS])
    assert idle.teacher.stop() == [request]
    assert idle.teacher.stop() == []
    with pytest.raises(Draining):
        idle.submit([5, EOS], [6, EOS])
    assert idle.told == []


def test_stop_waits_for_the_target_under_way() -> None:
    begun, may_end = threading.Event(), threading.Event()

    class Slow:
        """Stands for a runtime in the middle of a long target."""

        class manifest:
            class tokens:
                bos = BOS

            class limits:
                max_source_length = max_target_length = 20

        def teach(self, *given: Any) -> list[Any]:
            begun.set()
            assert may_end.wait(PATIENCE_S)
            return [np.zeros((1, 8), np.float32)]

    room = Classroom(Slow())
    room.teacher.start()
    running = room.submit([5, EOS], [6, EOS])
    assert begun.wait(PATIENCE_S)
    waiting = room.submit([5, EOS], [6, EOS])
    left: list[Request] = []
    stopping = threading.Thread(target=lambda: left.extend(room.teacher.stop()))
    stopping.start()
    while not room.teacher._stopped:
        time.sleep(0.001)
    may_end.set()
    stopping.join(PATIENCE_S)
    assert left == [waiting]
    assert room.told == [(running, Taught([0.0, 0.0], []))]
