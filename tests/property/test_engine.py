"""In a batch as alone: whatever runs beside a request, its tokens and score are the same."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reading import Reading
from tests.reference import Reference

from seqserve_model.transformer import Transformer
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Event, Finished, Progress, StopReason
from seqserve_server.contract.limits import EngineLimits, QueueLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Request
from seqserve_server.engine import worker as worker_module
from seqserve_server.engine.engine import Engine, deliver
from seqserve_server.engine.observer import NullObserver
from seqserve_server.engine.offline import Offline
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.worker import Worker

EOS, WORDS = 2, 384
MAX_SOURCE, MAX_TARGET = 24, 20
PATIENCE_S = 60.0

# The examples are the same in every run: two words may tie to within rounding somewhere among all
# sources there are, and then torch and ONNX Runtime may each be right.
SETTINGS = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request of a made-up day."""

    source: tuple[int, ...]
    longest: int
    shortest: int
    streamed: bool
    scored: bool
    gap_turns: int
    """Turns of the workers between the arrival before and this one."""
    cancelled_after: int | None
    """Turns after which it is cancelled."""
    attends: bool = False
    """Whether it shows what it attended to."""

    @property
    def options(self) -> DecodingOptions:
        return DecodingOptions(
            max_decoding_length=self.longest,
            min_decoding_length=min(self.shortest, self.longest),
            return_scores=self.scored,
            return_attention=self.attends,
        )


sources = st.lists(st.integers(4, WORDS - 1), max_size=MAX_SOURCE - 1).map(
    lambda words: (*words, EOS)
)
arrivals = st.builds(
    Arrival,
    source=sources,
    longest=st.integers(1, MAX_TARGET),
    shortest=st.sampled_from([0, 0, 1, 5, MAX_TARGET]),
    streamed=st.booleans(),
    scored=st.booleans(),
    gap_turns=st.integers(0, 4),
    cancelled_after=st.none() | st.none() | st.integers(0, 8),
)


seeing = st.builds(
    lambda arrival, attends: replace(arrival, attends=attends), arrivals, st.booleans()
)


class Alone:
    """Knows what a request gets with nothing beside it."""

    def __init__(self, offline: Offline) -> None:
        self.alone = cache(lambda source, options: offline.decode([list(source)], options)[0])

    def check(self, arrival: Arrival, events: list[Event]) -> Finished:
        *progress, last = events
        assert isinstance(last, Finished)
        # Always with its score, so that whether it is asked for changes nothing else either.
        ought = self.alone(arrival.source, replace(arrival.options, return_scores=True))
        assert last == (ought if arrival.scored else unscored(ought)), "not as alone"
        words: list[int] = []
        for event in progress:
            assert isinstance(event, Progress)
            words += event.token_ids
        assert words == (streamed(last) if arrival.streamed else [])
        return last


def unscored(answer: Finished) -> Finished:
    return Finished([answer.best._replace(score=None, normalized_score=None)])


def streamed(answer: Finished) -> list[int]:
    """Gives the words that are told before the answer, which brings its last one itself."""
    words = answer.best.token_ids
    return words if answer.best.stop_reason is StopReason.EOS else words[:-1]


class Oracle(Alone):
    """Knows also what it ought to get."""

    def __init__(self, offline: Offline, model: Transformer) -> None:
        super().__init__(offline)
        self.ought = cache(lambda source, options: Reference(Reading(model, list(source), options)))

    def check(self, arrival: Arrival, events: list[Event]) -> Finished:
        last = super().check(arrival, events)
        ought: Reference = self.ought(arrival.source, arrival.options)
        if ought.margin > 1e-4:
            assert last.best.token_ids == ought.answer.best.token_ids
            assert last.best.stop_reason is ought.answer.best.stop_reason
            assert last.best.score == pytest.approx(ought.answer.best.score, abs=1e-4)
        return last


@pytest.fixture(scope="module")
def oracle(tiny_offline: Offline, tiny_model: Transformer) -> Oracle:
    return Oracle(tiny_offline, tiny_model)


@pytest.fixture(
    scope="module",
    params=[
        "tiny_int8_artifact",
        pytest.param("tiny_row_scaled_artifact", marks=pytest.mark.parity),
    ],
)
def rounded(request: pytest.FixtureRequest) -> Iterator[Offline]:
    with Offline(request.getfixturevalue(request.param), slots=8) as offline:
        yield offline


@pytest.fixture(scope="module")
def alone(rounded: Offline) -> Alone:
    return Alone(rounded)


class Day:
    """Requests that arrive, are cancelled and are answered, turn by turn."""

    def __init__(self, runtime: Runtime, workers: int, slots: int, budget_tokens: int) -> None:
        self.scheduler = Scheduler(QueueLimits(max_queue=1000), workers=workers)
        self.workers = [
            Worker(runtime, self.scheduler, slots, budget_tokens, NullObserver(), str)
            for _ in range(workers)
        ]
        self.requests: list[Request] = []
        self.events: dict[int, list[Event]] = {}
        self.cancellations: list[tuple[int, int]] = []
        self.turns = 0

    def arrive(self, arrival: Arrival) -> None:
        number = len(self.requests)
        self.events[number] = []
        request = Request(
            source=list(arrival.source),
            options=arrival.options,
            receive=self.events[number].append,
            streamed=arrival.streamed,
        )
        self.requests.append(request)
        self.scheduler.submit(request)
        if arrival.cancelled_after is not None:
            self.cancellations.append((self.turns + arrival.cancelled_after, number))

    def turn(self) -> None:
        for when, number in self.cancellations:
            if when == self.turns:
                self.scheduler.cancel(self.requests[number])
        for worker in self.workers:
            for request, event in worker.turn():
                request.receive(event)
        self.turns += 1

    def run(self, plan: list[Arrival]) -> None:
        for arrival in plan:
            for _ in range(arrival.gap_turns):
                self.turn()
            self.arrive(arrival)
        while self.scheduler.running or self.scheduler.queue_depth:
            self.turn()


def run_day(day: Day, plan: list[Arrival], oracle: Alone) -> None:
    with mock.patch.object(worker_module, "_IDLE_S", 0.0):
        day.run(plan)
    assert (day.scheduler.running, day.scheduler.queue_depth) == (0, 0)
    for number, arrival in enumerate(plan):
        events = day.events[number]
        ended = bool(events) and not isinstance(events[-1], Progress)
        assert ended or arrival.cancelled_after is not None, "a request was lost"
        if ended:
            oracle.check(arrival, events)


days = given(
    plan=st.lists(arrivals, min_size=1, max_size=14),
    workers=st.integers(1, 2),
    slots=st.integers(1, 5),
    budget_tokens=st.sampled_from([1, 20, 512]),
)


@settings(SETTINGS, max_examples=40)
@days
def test_staggered_rows_decode_as_alone_and_as_torch(
    tiny_runtime: Runtime,
    oracle: Oracle,
    plan: list[Arrival],
    workers: int,
    slots: int,
    budget_tokens: int,
) -> None:
    run_day(Day(tiny_runtime, workers, slots, budget_tokens), plan, oracle)


@settings(SETTINGS, max_examples=10)
@days
def test_staggered_rows_decode_as_alone_where_all_is_rounded(
    rounded: Offline,
    alone: Alone,
    plan: list[Arrival],
    workers: int,
    slots: int,
    budget_tokens: int,
) -> None:
    run_day(Day(rounded.runtime, workers, slots, budget_tokens), plan, alone)


class Counts(NullObserver):
    """Notes whose end it was told of, and how often."""

    def __init__(self) -> None:
        self.numbers: Counter[int] = Counter()

    def ended(self, request: Request, event: Event) -> None:
        self.numbers[id(request)] += 1

    def cancelled(self, request: Request) -> None:
        self.numbers[id(request)] += 1


@settings(SETTINGS, max_examples=15)
@given(plan=st.lists(seeing, min_size=1, max_size=20), workers=st.integers(1, 3))
def test_threads_decode_as_alone_and_leave_nothing_behind(
    tiny_runtime: Runtime, oracle: Oracle, plan: list[Arrival], workers: int
) -> None:
    ends = [threading.Event() for _ in plan]
    events: list[list[Event]] = [[] for _ in plan]
    limits = EngineLimits(workers=workers, slots=4, max_queue=100, max_source_tokens_per_step=30)
    counts = Counts()
    engine = Engine(tiny_runtime, limits, deliver, counts, str)
    engine.start()
    requests = []
    for number, arrival in enumerate(plan):

        def receive(event: Event, number: int = number) -> None:
            events[number].append(event)
            if not isinstance(event, Progress):
                ends[number].set()

        request = Request(
            source=list(arrival.source),
            options=arrival.options,
            receive=receive,
            streamed=arrival.streamed,
        )
        engine.submit(request)
        requests.append(request)
    for request, arrival in zip(requests, plan, strict=True):
        if arrival.cancelled_after is not None:
            engine.cancel(request)
    for number, arrival in enumerate(plan):
        if arrival.cancelled_after is None:
            assert ends[number].wait(PATIENCE_S), "a request was lost"
            oracle.check(arrival, events[number])
    deadline_s = time.monotonic() + PATIENCE_S
    while engine.slots_in_use or engine.queue_depth:
        assert time.monotonic() < deadline_s, "a slot is not given back"
        time.sleep(0.001)
    engine.stop()
    assert counts.numbers == Counter(id(request) for request in requests), "not counted once each"


def assert_worth_comparing(offline: Offline) -> None:
    """Rows of one and the same answer could be swapped unseen."""
    answers = offline.decode([[word, word + 1, EOS] for word in range(4, 84)])
    assert len({tuple(answer.best.token_ids) for answer in answers}) > 60
    lengths = {len(answer.best.token_ids) for answer in answers}
    assert len(lengths) > 5, "targets end at few places"
    assert MAX_TARGET in lengths, "none is cut off"
    steps = [pair for answer in answers for pair in pairwise(answer.best.token_ids)]
    assert sum(a == b for a, b in steps) < 0.4 * len(steps), "they repeat one word"


def test_answers_are_worth_comparing(tiny_offline: Offline) -> None:
    assert_worth_comparing(tiny_offline)


def test_rounded_answers_are_worth_comparing(rounded: Offline, tiny_offline: Offline) -> None:
    assert_worth_comparing(rounded)
    sources = [[word, word + 1, EOS] for word in range(4, 84)]
    pairs = zip(rounded.decode(sources), tiny_offline.decode(sources), strict=True)
    assert all(one.best.score != other.best.score for one, other in pairs), "nothing is rounded"


def test_prompt_errors_stay_out_of_the_way(tiny_offline: Offline, oracle: Oracle) -> None:
    """A source that fails takes none of those beside it along."""
    good = Arrival(
        source=(5, 6, EOS), longest=9, shortest=0, streamed=False, scored=True, gap_turns=0,
        cancelled_after=None,
    )  # fmt: skip
    with pytest.raises(ServiceError):
        tiny_offline.decode([[5, 6, EOS], [WORDS, 6, EOS], [7, EOS]])
    oracle.check(good, [tiny_offline.decode([list(good.source)], good.options)[0]])
