from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from seqserve_model.transformer import AttentionRecord, Transformer
from seqserve_server.contract.errors import DeadlinePassed, EngineFault, Stage
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Hypothesis,
    StopReason,
    TargetScored,
)
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Request, RequestState
from seqserve_server.engine import scorer as module
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.scorer import Scorer

BOS, EOS, WORDS = 1, 2, 384
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
    """A scorer that turns by hand, and all it told."""

    def __init__(self, runtime: Any) -> None:
        self.waiting = ScoreQueue(QueueLimits(max_queue=9))
        self.scorer = Scorer(runtime, self.waiting)
        self.told: list[tuple[Request, Event]] = []

    def submit(self, source: list[int], target: list[int], **more: Any) -> Request:
        request = make_request(source, target=target, **more)
        self.waiting.submit(request)
        return request

    def annotate(self, request: Request, *hypotheses: Hypothesis) -> None:
        request.state = RequestState.DECODED
        self.waiting.annotate(request, Finished(list(hypotheses)))

    def event(self, request: Request) -> Event:
        """Turns until a request is told something."""
        while not (events := [event for owner, event in self.told if owner is request]):
            told = self.scorer.turn()
            assert told, "nothing waits"
            self.told += told
        [event] = events
        return event


def make_request(source: list[int], options: DecodingOptions = OPTIONS, **more: Any) -> Request:
    return Request(source=source, options=options, receive=lambda event: None, **more)


@pytest.fixture
def room(tiny_runtime: Runtime) -> Classroom:
    return Classroom(tiny_runtime)


@torch.inference_mode()
def taught(
    model: Transformer, source: list[int], target: list[int]
) -> tuple[list[float], list[np.ndarray[Any, Any]]]:
    """Reads a target in one pass: the log-probability of each token, and all that it attended."""
    model = copy.deepcopy(model).double()
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
    assert isinstance(event, TargetScored)
    assert event.token_scores == pytest.approx(taught(tiny_model, source, target)[0], abs=1e-4)
    assert event.weights == []


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_attention_is_that_of_torch(
    room: Classroom, tiny_model: Transformer, source: list[int], target: list[int]
) -> None:
    event = room.event(room.submit(source, target, wants_attention=True))
    assert isinstance(event, TargetScored)
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
    room.annotate(request, whole, other)
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
    answer = Hypothesis([], -1.0, reason)
    room.annotate(request, answer)
    assert room.event(request) == Finished([answer])


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
    room.annotate(request, *answer.hypotheses)
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


@pytest.mark.parametrize("wants_attention", [False, True])
def test_targets_that_wait_together_are_told_in_turn_as_alone(
    room: Classroom, tiny_runtime: Runtime, wants_attention: bool
) -> None:
    requests = [
        room.submit(source, target, wants_attention=wants_attention) for source, target in PAIRS
    ]
    together = [room.event(request) for request in requests]
    assert [request for request, _ in room.told] == requests
    for (source, target), event in zip(PAIRS, together, strict=True):
        one = Classroom(tiny_runtime)
        assert one.event(one.submit(source, target, wants_attention=wants_attention)) == event


def test_target_that_cannot_be_run_is_told_so_and_the_next_one_is_run(
    room: Classroom, caplog: pytest.LogCaptureFixture
) -> None:
    broken = room.event(room.submit([5, EOS], [WORDS, EOS]))
    assert isinstance(broken, Failed)
    assert isinstance(broken.error, EngineFault)
    assert "a target could not be run" in caplog.text
    assert isinstance(room.event(room.submit([5, EOS], [6, EOS])), TargetScored)


def test_targets_that_wait_are_scored_together(room: Classroom, monkeypatch: Any) -> None:
    sizes: list[int] = []
    teach = Runtime.teach

    def counted(self: Runtime, source: Any, *rest: Any) -> list[Any]:
        sizes.append(len(source))
        return teach(self, source, *rest)

    monkeypatch.setattr(Runtime, "teach", counted)
    scored = [room.submit(*pair) for pair in PAIRS[:3]]
    attended = room.submit(*PAIRS[3], wants_attention=True)
    last = room.submit(*PAIRS[4])
    for request in (*scored, attended, last):
        assert isinstance(room.event(request), TargetScored)
    assert sizes == [3, 1, 1]


def test_only_the_culprit_fails_of_targets_that_wait_together(room: Classroom) -> None:
    fine = room.submit([5, EOS], [19, EOS])
    wrong = room.submit([5, EOS], [WORDS + 1, EOS])
    also_fine = room.submit([6, EOS], [19, EOS])
    assert isinstance(room.event(fine), TargetScored)
    assert isinstance(room.event(wrong), Failed)
    assert isinstance(room.event(also_fine), TargetScored)


def test_request_that_is_late_is_not_run(room: Classroom) -> None:
    past_s = time.monotonic()
    late = room.submit([5, EOS], [6, EOS], deadline_s=past_s)
    answered = make_request([5, EOS], deadline_s=past_s)
    room.annotate(answered, Hypothesis([6], -1.0, StopReason.EOS))
    early = room.submit([5, EOS], [6, EOS], deadline_s=past_s + 1000)
    assert isinstance(room.event(early), TargetScored)
    for request, where in ((late, Stage.QUEUE), (answered, Stage.DECODE)):
        event = room.event(request)
        assert isinstance(event, Failed)
        assert isinstance(event.error, DeadlinePassed)
        assert event.error.where is where


def test_idle_turn_tells_nothing(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 0.0)
    assert room.scorer.turn() == []


def test_warm_up_runs_every_output(room: Classroom, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[list[str]] = []
    teach = Runtime.teach

    def noted(self: Runtime, *given: Any) -> list[Any]:
        wanted.append(given[-1])
        return teach(self, *given)

    monkeypatch.setattr(Runtime, "teach", noted)
    room.scorer.warm_up()
    assert wanted == [
        ["log_probabilities", "encoder_attention", "decoder_attention", "cross_attention"]
    ]
