"""Every way to decode gives in a batch what it gives alone, bit for bit, and as the reference."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reading import Reading
from tests.reference import Reference

from seqserve_model.transformer import Transformer
from seqserve_server.contract.events import Event, Finished, Hypothesis, Progress, StopReason
from seqserve_server.contract.limits import EngineLimits, QueueLimits
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.provider import Provider
from seqserve_server.contract.request import Priority, Request
from seqserve_server.engine import scorer as teacher_module
from seqserve_server.engine import worker as worker_module
from seqserve_server.engine.engine import Engine, deliver
from seqserve_server.engine.observer import NullObserver
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.scorer import Scorer
from seqserve_server.engine.worker import Worker

EOS, VOCABULARY_SIZE = 2, 384
MAX_SOURCE, MAX_TARGET, MAX_ROWS = 24, 20, 4
PATIENCE_S = 60.0
# Sums of float32 in another order differ by less than TIE, so a decision nearer than that may go
# either way; scores may differ by TOLERANCE.
TIE, TOLERANCE = 3e-5, 1e-4

# Tokens that the tiny model generates most often. Suppressed, forced and stop tokens are taken from
# these, so that options have an effect.
LIKELY = [19, 172, 275, 101, 226, 375, 152, 15, 346, 192, 235, 214]

SETTINGS = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def text_of(token_ids: Sequence[int]) -> str:
    """Gives a text of few letters, in which stop sequences are frequent, also across tokens."""
    return "".join("abcdefg"[token % 7] * (1 + token % 3) for token in token_ids)


likely = st.sampled_from(LIKELY)
sources = st.lists(st.integers(4, VOCABULARY_SIZE - 1), max_size=MAX_SOURCE - 1).map(
    lambda tokens: (*tokens, EOS)
)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 50]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    seed=st.integers(0, 2**64 - 1),
)

vocabularies = st.sampled_from([{*LIKELY, *range(EOS, VOCABULARY_SIZE, gap)} for gap in (2, 40)])
few_tokens = st.sets(likely, min_size=1, max_size=3)


def mostly(value: object, *strategies: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Gives the default in two cases of three."""
    return st.just(value) | st.just(value) | st.one_of(*strategies)


@st.composite
def beams(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(2, MAX_ROWS))
    return {
        "beam_size": size,
        "num_hypotheses": draw(st.integers(1, size)),
        "patience": draw(mostly(1.0, st.sampled_from([0.7, 2.0]))),
        "coverage_penalty": draw(st.sampled_from([0.2, 1.0, 0.0])),
    }


@st.composite
def option_sets(draw: st.DrawFn) -> DecodingOptions:
    kind = draw(st.sampled_from(["draft", "alternatives", "beam", "samples", "greedy"]))
    max_length = draw(st.integers(1, MAX_TARGET))
    drafts = st.lists(likely, min_size=1, max_size=3)
    prefix = tuple(draw(drafts if kind == "draft" else mostly([], drafts)))[: max_length - 1]
    ends = draw(mostly([], st.lists(likely, min_size=1, max_size=2, unique=True)))
    stops = draw(mostly([], st.lists(st.text("cdef", min_size=1, max_size=4), max_size=2)))
    vocabulary = set() if kind == "draft" else draw(mostly(set(), vocabularies, few_tokens))
    options = DecodingOptions(
        max_decoding_length=max_length,
        min_decoding_length=draw(mostly(0, st.integers(0, max_length))),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0, 1.5])),
        repetition_penalty=draw(mostly(1.0, st.sampled_from([0.7, 1.1, 3.0]))),
        no_repeat_ngram_size=draw(mostly(0, st.integers(1, 3))),
        suppressed=tuple(
            draw(mostly([], st.lists(st.lists(likely, min_size=1, max_size=3).map(tuple))))
        ),
        end_ids=tuple(token for token in ends if token not in prefix),
        stops=tuple(stop for stop in stops if stop not in text_of(prefix)),
        prefix=prefix,
        vocabulary=tuple(sorted({*vocabulary, EOS, *ends, *prefix} if vocabulary else ())),
        return_scores=draw(mostly(True, st.booleans())),
        return_token_scores=draw(st.booleans()),
        return_top_tokens=draw(mostly(0, st.integers(1, 4))),
    )
    if kind in ("beam", "draft"):
        beta = draw(st.sampled_from([0.3, 0.9])) if kind == "draft" and prefix else 0.0
        return replace(options, prefix_bias_beta=beta, **draw(beams()))
    if kind == "samples":
        count = draw(st.integers(1, 3))
        return replace(options, sampling=draw(samplings), num_hypotheses=count)
    if kind == "alternatives":
        size = draw(st.integers(1, 2))
        return replace(
            options,
            return_alternatives=True,
            beam_size=size,
            num_hypotheses=draw(st.integers(1, MAX_ROWS // size)),
            min_alternative_expansion_prob=draw(mostly(0.0, st.sampled_from([0.01, 0.1]))),
        )
    return options


@st.composite
def few_tokens_once(draw: st.DrawFn) -> DecodingOptions:
    """Allows so few tokens, with so few repetitions, that soon no token is left."""
    options = draw(option_sets())
    tokens = {EOS, *options.end_ids, *draw(few_tokens)}
    return replace(
        options,
        vocabulary=tuple(sorted(tokens)),
        no_repeat_ngram_size=draw(st.integers(1, 2)),
        min_decoding_length=draw(st.integers(0, options.max_decoding_length)),
        prefix_bias_beta=0.0,
    )


@st.composite
def with_terms(draw: st.DrawFn) -> DecodingOptions:
    """Adds terms to a beam search; the reference does not know them."""
    options = draw(option_sets())
    is_apart = options.prefix_bias_beta or options.return_alternatives or options.vocabulary
    if options.beam_size == 1 or is_apart:
        return options
    if options.suppressed or options.end_ids or options.stops:
        return options
    terms = draw(mostly([], st.lists(st.lists(likely, min_size=1, max_size=2), max_size=2)))
    return replace(options, terms=tuple(map(tuple, terms)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request of a day, and when it arrives."""

    source: tuple[int, ...]
    options: DecodingOptions
    streamed: bool = False
    gap_turns: int = 0
    """Iterations of the workers between the previous arrival and this one."""
    cancelled_after: int | None = None
    """Iterations after which it is cancelled."""


arrivals = st.builds(
    Arrival,
    source=sources,
    options=with_terms(),
    streamed=st.booleans(),
    gap_turns=st.integers(0, 4),
    cancelled_after=st.none() | st.none() | st.integers(0, 8),
)


class Inbox:
    """The events of one request; a test can wait for the last one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._ended = threading.Event()

    def receive(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, Progress):
            self._ended.set()

    def answer(self) -> Finished:
        assert self._ended.wait(PATIENCE_S), "a request was lost"
        assert isinstance(self.events[-1], Finished), self.events[-1]
        return self.events[-1]


def make_engine(runtime: Runtime, *, workers: int, slots: int) -> Engine:
    limits = EngineLimits(
        workers=workers, slots=slots, max_queue=100, max_source_tokens_per_step=30
    )
    return Engine(runtime, limits, deliver, NullObserver(), text_of)


def alone(runtime: Runtime, source: tuple[int, ...], options: DecodingOptions) -> Finished:
    """Decodes one source in an engine that has never run another."""
    inbox = Inbox()
    engine = make_engine(runtime, workers=1, slots=options.rows)
    engine.start()
    engine.submit(Request(source=list(source), options=options, receive=inbox.receive))
    answer = inbox.answer()
    engine.stop()
    return answer


class Day:
    """Stands for the engine's threads: requests arrive, are cancelled and end step by step."""

    def __init__(self, runtime: Runtime, workers: int, slots: int, budget_tokens: int) -> None:
        self.scheduler = Scheduler(
            QueueLimits(max_queue=1000), workers=workers, slots=workers * slots
        )
        self.workers = [
            Worker(runtime, self.scheduler, slots, budget_tokens, NullObserver(), text_of)
            for _ in range(workers)
        ]
        self.known = ScoreQueue(QueueLimits(max_queue=1000))
        self.scorer = Scorer(runtime, self.known)
        self.inboxes: list[Inbox] = []
        self.cancellations: list[tuple[int, Request]] = []
        self.turns = 0

    def arrive(self, arrival: Arrival) -> None:
        inbox = Inbox()
        self.inboxes.append(inbox)
        request = Request(
            source=list(arrival.source),
            options=arrival.options,
            receive=inbox.receive,
            streamed=arrival.streamed,
            number=len(self.inboxes) - 1,
        )
        self.scheduler.submit(request)
        if arrival.cancelled_after is not None:
            self.cancellations.append((self.turns + arrival.cancelled_after, request))

    def turn(self) -> None:
        for when, request in self.cancellations:
            if when == self.turns:
                self.scheduler.cancel(request)
                self.known.cancel(request)
        for worker in self.workers:
            for request, event in worker.turn():
                if isinstance(event, Finished) and request.options.needs_attention:
                    self.known.annotate(request, event)
                else:
                    request.receive(event)
        for request, event in self.scorer.turn():
            assert self.scheduler.settle(request), "it was cancelled"
            request.receive(event)
        self.turns += 1

    @property
    def is_over(self) -> bool:
        return not (
            self.scheduler.running
            or self.scheduler.queue_depth
            or any(self.scheduler.decoded(priority) for priority in Priority)
        )

    def run(self, plan: Sequence[Arrival]) -> None:
        with (
            mock.patch.object(worker_module, "_IDLE_S", 0.0),
            mock.patch.object(teacher_module, "_IDLE_S", 0.0),
        ):
            for arrival in plan:
                for _ in range(arrival.gap_turns):
                    self.turn()
                self.arrive(arrival)
            while not self.is_over:
                assert self.turns < 1000, "a request does not end"
                self.turn()

    def assert_empty(self) -> None:
        assert self.is_over
        for worker in self.workers:
            worker.assert_idle()


def assert_as_alone(runtime: Runtime, day: Day, plan: Sequence[Arrival]) -> None:
    for inbox, arrival in zip(day.inboxes, plan, strict=True):
        is_answered = bool(inbox.events) and isinstance(inbox.events[-1], Finished)
        assert is_answered or arrival.cancelled_after is not None, "a request was lost"
        if not is_answered:
            continue
        # As text, where NaN equals NaN and every bit of other numbers counts.
        assert repr(inbox.answer()) == repr(alone(runtime, arrival.source, arrival.options))
        assert_streamed(inbox, arrival)


def assert_streamed(inbox: Inbox, arrival: Arrival) -> None:
    """Checks that tokens are streamed as they are generated, the last one with the answer."""
    *progress, answer = inbox.events
    assert isinstance(answer, Finished)
    tokens = [
        token for event in progress if isinstance(event, Progress) for token in event.token_ids
    ]
    if not arrival.streamed or arrival.options.rows > 1:
        assert not tokens
    elif answer.best.stop_reason is StopReason.STOP_SEQUENCE:
        output = answer.best.token_ids
        assert tokens[: len(output)] == output[: len(tokens)]
    else:
        ends = answer.best.stop_reason is StopReason.EOS
        assert tokens == answer.best.token_ids[: None if ends else -1]


days = given(
    plan=st.lists(arrivals, min_size=2, max_size=12),
    workers=st.integers(1, 2),
    slots=st.integers(MAX_ROWS, 7),
    budget_tokens=st.sampled_from([1, 20, 512]),
)


def run_day(
    runtime: Runtime, plan: Sequence[Arrival], workers: int, slots: int, budget_tokens: int
) -> Day:
    """Runs a day and checks that every request was answered as alone and nothing is left."""
    day = Day(runtime, workers, slots, budget_tokens)
    day.run(plan)
    day.assert_empty()
    assert_as_alone(runtime, day, plan)
    return day


@settings(SETTINGS, max_examples=10)
@days
def test_mixed_requests_decode_as_alone(
    tiny_runtime: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    run_day(tiny_runtime, plan, workers, slots, budget_tokens)


@pytest.fixture(scope="module")
def int8_runtime(tiny_int8_artifact: Path) -> Runtime:
    manifest = Manifest.load(tiny_int8_artifact)
    return Runtime(tiny_int8_artifact, manifest, Provider.CPU, threads=1)


@settings(SETTINGS, max_examples=4)
@days
def test_mixed_requests_decode_as_alone_at_int8(
    int8_runtime: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    run_day(int8_runtime, plan, workers, slots, budget_tokens)


@pytest.fixture(scope="module")
def reference(tiny_model: Transformer) -> Callable[[tuple[int, ...], DecodingOptions], Reference]:
    return lambda source, options: Reference(Reading(tiny_model, list(source), options), text_of)


@settings(SETTINGS, max_examples=35)
@given(source=sources, options=option_sets() | option_sets() | few_tokens_once())
def test_a_request_decodes_as_the_reference(
    tiny_runtime: Runtime,
    reference: Callable[[tuple[int, ...], DecodingOptions], Reference],
    source: tuple[int, ...],
    options: DecodingOptions,
) -> None:
    found = alone(tiny_runtime, source, options)
    expected = reference(source, options)
    if expected.margin > TIE:
        assert len(found.hypotheses) == len(expected.answer.hypotheses)
        for one, other in zip(found.hypotheses, expected.answer.hypotheses, strict=True):
            assert_close(one, other)


def assert_close(one: Hypothesis, other: Hypothesis) -> None:
    assert one.token_ids == other.token_ids
    assert (one.stop_reason, one.text_length) == (other.stop_reason, other.text_length)
    assert one.score == pytest.approx(other.score, abs=TOLERANCE)
    assert one.normalized_score == pytest.approx(other.normalized_score, abs=TOLERANCE)
    assert one.token_scores == pytest.approx(other.token_scores, abs=TOLERANCE, nan_ok=True)
    assert len(one.top_tokens) == len(other.top_tokens)
    for found, expected in zip(one.top_tokens, other.top_tokens, strict=True):
        assert [token for token, _ in found] == [token for token, _ in expected]
        scores = [score for _, score in expected]
        assert [score for _, score in found] == pytest.approx(scores, abs=TOLERANCE)


def options_of(index: int) -> DecodingOptions:
    """Gives one of 64 sets of options, no two alike."""
    kinds = [
        DecodingOptions(max_decoding_length=MAX_TARGET),
        DecodingOptions(
            max_decoding_length=MAX_TARGET, beam_size=4, num_hypotheses=2, terms=((226, 15), (19,))
        ),
        DecodingOptions(
            max_decoding_length=15,
            beam_size=3,
            patience=2.0,
            length_penalty=0.5,
            coverage_penalty=0.5,
        ),
        DecodingOptions(
            max_decoding_length=MAX_TARGET,
            sampling=Sampling(1.0, 0, 0.9, 0.0, index),
            num_hypotheses=3,
        ),
    ]
    if index >= 32:
        kinds[0] = replace(kinds[0], num_hypotheses=3, return_alternatives=True)
    choices = [
        {"repetition_penalty": 1.3, "return_top_tokens": 3},
        {"no_repeat_ngram_size": 2, "min_decoding_length": 12, "return_attention": True},
        {"prefix": (172, 19), "return_token_scores": True},
        {"stops": ("fcc", "ffd"), "suppressed": ((19, 275), (226,))},
    ]
    options = kinds[index % 4]
    for bit, choice in enumerate(choices):
        if index // 4 >> bit & 1:
            options = replace(options, **choice)
    return options


def test_64_ways_to_decode_at_once_give_what_each_gives_alone(tiny_runtime: Runtime) -> None:
    plan = [((4 + 3 * index, 5 + index, EOS), options_of(index)) for index in range(64)]
    assert len({options for _, options in plan}) == 64
    engine = make_engine(tiny_runtime, workers=2, slots=24)
    inboxes = [Inbox() for _ in plan]

    def submit(part: int) -> None:
        for (source, options), inbox in list(zip(plan, inboxes, strict=True))[part::4]:
            engine.submit(Request(source=list(source), options=options, receive=inbox.receive))

    threads = [threading.Thread(target=submit, args=(part,)) for part in range(4)]
    engine.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers = [inbox.answer() for inbox in inboxes]
    engine.stop()
    assert (engine.slots_in_use, engine.queue_depth) == (0, 0)
    for (source, options), answer in zip(plan, answers, strict=True):
        assert repr(answer) == repr(alone(tiny_runtime, source, options))
        for one in answer.hypotheses:
            assert bool(one.attention) == bool(options.return_attention and one.token_ids)


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 11])
def test_cancelled_requests_free_their_slots_and_do_not_affect_others(
    tiny_runtime: Runtime, steps: int
) -> None:
    beam = DecodingOptions(
        max_decoding_length=MAX_TARGET, beam_size=4, min_decoding_length=12, no_repeat_ngram_size=2
    )
    samples = replace(beam, beam_size=1, num_hypotheses=3, sampling=Sampling(1.0, 0, 1.0, 0.0, 5))
    long = DecodingOptions(max_decoding_length=MAX_TARGET, min_decoding_length=MAX_TARGET)
    plan = [
        Arrival(source=(30, 31, EOS), options=replace(beam, beam_size=3), cancelled_after=steps),
        Arrival(source=(40, EOS), options=beam, cancelled_after=steps + 1),
        Arrival(source=(50, 51, 52, EOS), options=samples, cancelled_after=steps),
        Arrival(source=(55, EOS), options=long, cancelled_after=steps),
        Arrival(source=(60, EOS), options=replace(beam, beam_size=1)),
        Arrival(source=(70, 71, EOS), options=samples, gap_turns=1),
        Arrival(source=(80, EOS), options=beam),
    ]
    day = run_day(tiny_runtime, plan, 1, 12, 512)
    assert [bool(inbox.events) for inbox in day.inboxes] == [False] * 4 + [True] * 3


def test_the_tokens_and_texts_of_the_options_above_are_frequent(tiny_runtime: Runtime) -> None:
    """Options without an effect would be compared in vain."""
    options = DecodingOptions(max_decoding_length=MAX_TARGET)
    answers = [alone(tiny_runtime, (token, token + 1, EOS), options).best for token in range(4, 64)]
    outputs = [answer.token_ids for answer in answers]
    assert sum(bool(set(output) & set(LIKELY)) for output in outputs) > 0.9 * len(outputs)
    assert sum("fcc" in text_of(output) for output in outputs) > 0.2 * len(outputs)
    assert {answer.stop_reason for answer in answers} == {StopReason.EOS, StopReason.LENGTH}
