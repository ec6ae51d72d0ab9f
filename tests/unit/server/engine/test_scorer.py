import copy
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.server.engine.requests import generation, scoring

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
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.request import Request
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


class ScoreSteps:
    """A scorer, stepped by the test, and its events."""

    def __init__(self, runtime: Any) -> None:
        self.queue = ScoreQueue(QueueLimits(max_queue=9))
        self.scorer = Scorer(runtime, self.queue, idle_s=0.0)
        self.events: list[tuple[Request, Event]] = []

    def submit(self, source: list[int], target: list[int], **more: Any) -> Request:
        request = scoring(source, target, **more)
        self.queue.submit(request)
        return request

    def attend(
        self, source: list[int], options: DecodingOptions, *hypotheses: Hypothesis, **more: Any
    ) -> Request:
        answer = Finished(list(hypotheses))
        request = generation(source, options, answer=answer, **more)
        self.queue.submit(request)
        return request

    def event(self, request: Request) -> Event:
        while not (found := [event for owner, event in self.events if owner is request]):
            events = self.scorer.step()
            assert events, "nothing waits"
            self.events += events
        [event] = found
        return event


@pytest.fixture
def steps(tiny_runtime: Runtime) -> ScoreSteps:
    return ScoreSteps(tiny_runtime)


@torch.inference_mode()
def forced(
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
def test_scores_and_attention_are_those_of_torch(
    steps: ScoreSteps, tiny_model: Transformer, source: list[int], target: list[int]
) -> None:
    plain = steps.event(steps.submit(source, target))
    event = steps.event(steps.submit(source, target, wants_attention=True))
    assert isinstance(plain, TargetScored) and isinstance(event, TargetScored)
    scores, ought = forced(tiny_model, source, target)
    assert event.token_scores == pytest.approx(scores, abs=1e-4)
    assert plain.token_scores == pytest.approx(scores, abs=1e-4) and plain.weights == []
    read, written, heads = len(source), len(target), tiny_model.config.heads
    shapes = [(2, heads, read, read), (1, heads, written, written), (1, heads, written, read)]
    for data, shape, theirs in zip(event.weights, shapes, ought, strict=True):
        ours = weights_of(data, *shape)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        np.testing.assert_allclose(ours.sum(-1), 1.0, atol=1e-5)
    own = weights_of(event.weights[1], *shapes[1])
    assert not np.triu(own, 1).any(), "a token looks ahead"


@pytest.mark.parametrize("reason", StopReason)
def test_answer_without_tokens_attends_to_nothing(steps: ScoreSteps, reason: StopReason) -> None:
    answer = Hypothesis([], -1.0, reason)
    request = steps.attend([5, EOS], replace(OPTIONS, return_attention=True), answer)
    assert steps.event(request) == Finished([answer])


@pytest.mark.parametrize("shown", [False, True])
def test_hypotheses_are_ranked_by_coverage_too(
    steps: ScoreSteps, tiny_model: Transformer, shown: bool
) -> None:
    source, wanted = [5, 6, 7, EOS], 3
    options = replace(
        OPTIONS, beam_size=4, coverage_penalty=0.5, num_hypotheses=wanted, return_attention=shown
    )
    ended = [
        ([19, 226, 15], StopReason.EOS),
        ([19], StopReason.LENGTH),
        ([19], StopReason.EOS),
        ([226, 226, 226, 19, 15], StopReason.LENGTH),
    ]
    answer = Finished([Hypothesis(words, -5.0, reason, -1.0) for words, reason in ended])
    request = steps.attend(source, options, *answer.hypotheses)
    event = steps.event(request)
    assert isinstance(event, Finished)
    ranks, shares = {}, {}
    for one in answer.hypotheses:
        # The attention of the end token counts where it was generated.
        target = [*one.token_ids, *([EOS] if one.stop_reason is StopReason.EOS else [])]
        _, (_, _, cross) = forced(tiny_model, source, target)
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


class NotingRuntime:
    """Notes the shapes and outputs that are run, and when scratch memory is freed."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.shapes: list[tuple[int, int]] = []
        self.outputs: list[list[str]] = []
        self.freed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def score(self, source: Any, lengths: Any, target: Any, outputs: list[str]) -> list[Any]:
        self.shapes.append(target.shape)
        self.outputs.append(outputs)
        return self._runtime.score(source, lengths, target, outputs)

    def free_scratch(self) -> None:
        self.freed += 1
        self._runtime.free_scratch()


def test_many_hypotheses_are_run_in_parts_and_as_alone(
    tiny_runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqserve_server.engine.scorer._MAX_LOGITS_BYTES", 100_000)
    options = replace(OPTIONS, return_attention=True)
    hypotheses = [Hypothesis([19, 226, 15 + n], -3.0, StopReason.EOS) for n in range(9)]
    noting = NotingRuntime(tiny_runtime)
    together, alone = ScoreSteps(noting), ScoreSteps(tiny_runtime)
    found = together.event(together.attend([5, 6, EOS], options, *hypotheses))
    assert isinstance(found, Finished)
    assert len(noting.shapes) > 1
    assert all(4 * WORDS * rows * length <= 100_000 for rows, length in noting.shapes)
    for one, hypothesis in zip(found.hypotheses, hypotheses, strict=True):
        other = alone.event(alone.attend([5, 6, EOS], options, hypothesis))
        assert isinstance(other, Finished)
        assert one == other.best


def test_an_idle_scorer_frees_its_scratch_memory_once(
    tiny_runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqserve_server.engine.scorer._KEEP_S", 0.0)
    noting = NotingRuntime(tiny_runtime)
    steps = ScoreSteps(noting)
    for count in (1, 2):
        steps.event(steps.submit([5, EOS], [19, EOS]))
        assert noting.freed == count - 1
        steps.scorer.step()
        steps.scorer.step()
        assert noting.freed == count


@pytest.mark.parametrize("wants_attention", [False, True])
def test_targets_that_wait_together_are_scored_in_order_and_as_alone(
    steps: ScoreSteps, tiny_runtime: Runtime, wants_attention: bool
) -> None:
    requests = [
        steps.submit(source, target, wants_attention=wants_attention) for source, target in PAIRS
    ]
    together = [steps.event(request) for request in requests]
    assert [request for request, _ in steps.events] == requests
    for (source, target), event in zip(PAIRS, together, strict=True):
        one = ScoreSteps(tiny_runtime)
        assert one.event(one.submit(source, target, wants_attention=wants_attention)) == event


def test_targets_that_wait_are_scored_together(tiny_runtime: Runtime) -> None:
    noting = NotingRuntime(tiny_runtime)
    steps = ScoreSteps(noting)
    scored = [steps.submit(*pair) for pair in PAIRS[:3]]
    attended = steps.submit(*PAIRS[3], wants_attention=True)
    last = steps.submit(*PAIRS[4])
    for request in (*scored, attended, last):
        assert isinstance(steps.event(request), TargetScored)
    assert [rows for rows, _ in noting.shapes] == [3, 1, 1]


def test_only_the_faulty_target_fails_of_those_that_run_together(
    steps: ScoreSteps, caplog: pytest.LogCaptureFixture
) -> None:
    targets = [[19, EOS], [WORDS, EOS], [6, EOS]]
    fine, wrong, also_fine = (steps.submit([5, EOS], target) for target in targets)
    assert isinstance(steps.event(fine), TargetScored)
    failed = steps.event(wrong)
    assert isinstance(failed, Failed) and isinstance(failed.error, EngineFault)
    assert isinstance(steps.event(also_fine), TargetScored)
    assert "a target could not be run" in caplog.text


def test_request_that_is_late_is_not_run(steps: ScoreSteps) -> None:
    past_s = time.monotonic()
    late = steps.submit([5, EOS], [6, EOS], deadline_s=past_s)
    hypothesis = Hypothesis([6], -1.0, StopReason.EOS)
    answered = steps.attend([5, EOS], OPTIONS, hypothesis, deadline_s=past_s)
    early = steps.submit([5, EOS], [6, EOS], deadline_s=past_s + 1000)
    assert isinstance(steps.event(early), TargetScored)
    for request, where in ((late, Stage.QUEUE), (answered, Stage.DECODE)):
        event = steps.event(request)
        assert isinstance(event, Failed)
        assert isinstance(event.error, DeadlinePassed)
        assert event.error.where is where


def test_idle_step_has_no_events(steps: ScoreSteps) -> None:
    assert steps.scorer.step() == []


def test_warm_up_runs_every_output(tiny_runtime: Runtime) -> None:
    noting = NotingRuntime(tiny_runtime)
    ScoreSteps(noting).scorer.warm_up()
    assert noting.outputs == [
        ["log_probabilities", "encoder_attention", "decoder_attention", "cross_attention"]
    ]
