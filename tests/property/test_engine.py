"""A request gets the same tokens and score in a batch as alone, whatever runs beside it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference import Reference
from tests.reference_log_probs import ReferenceLogProbs
from tests.unit.server.engine.requests import KeptRequest, keep

from seqserve_model.transformer import Transformer
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Event, Finished, Progress, StopReason
from seqserve_server.contract.limits import EngineLimits, QueueLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.request import Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.worker import Worker

EOS, VOCABULARY_SIZE = 2, 384
MAX_SOURCE, MAX_TARGET = 24, 20
PATIENCE_S = 60.0

# The examples are the same in every run: two tokens may tie to within rounding somewhere among all
# sources there are, and then torch and ONNX Runtime may each be right.
SETTINGS = settings(derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request of a scenario."""

    source: tuple[int, ...]
    max_length: int
    min_length: int
    streamed: bool
    scored: bool
    gap_steps: int
    """Steps of the workers between the previous arrival and this one."""
    cancelled_after: int | None
    """Steps after which it is cancelled."""
    attends: bool = False
    """Whether it returns attention."""

    @property
    def options(self) -> DecodingOptions:
        return DecodingOptions(
            max_decoding_length=self.max_length,
            min_decoding_length=min(self.min_length, self.max_length),
            return_scores=self.scored,
            return_attention=self.attends,
        )

    def request(self) -> KeptRequest:
        spec = GenerateSpec(source=list(self.source), options=self.options, streamed=self.streamed)
        return KeptRequest(spec)


sources = st.lists(st.integers(4, VOCABULARY_SIZE - 1), max_size=MAX_SOURCE - 1).map(
    lambda tokens: (*tokens, EOS)
)
arrivals = st.builds(
    Arrival,
    source=sources,
    max_length=st.integers(1, MAX_TARGET),
    min_length=st.sampled_from([0, 0, 1, 5, MAX_TARGET]),
    streamed=st.booleans(),
    scored=st.booleans(),
    gap_steps=st.integers(0, 4),
    cancelled_after=st.none() | st.none() | st.integers(0, 8),
)


attending = st.builds(
    lambda arrival, attends: replace(arrival, attends=attends), arrivals, st.booleans()
)


class Alone:
    """Knows the answer of a request with nothing beside it."""

    def __init__(self, offline: LocalEngine) -> None:
        self.alone = cache(lambda source, options: offline.decode([list(source)], options)[0])

    def check(self, arrival: Arrival, events: list[Event]) -> Finished:
        *progress, last = events
        assert isinstance(last, Finished)
        # Always with its score, so that whether it is asked for changes nothing else either.
        ought = self.alone(arrival.source, replace(arrival.options, return_scores=True))
        assert last == (ought if arrival.scored else unscored(ought)), "not as alone"
        tokens: list[int] = []
        for event in progress:
            assert isinstance(event, Progress)
            tokens += event.token_ids
        assert tokens == (streamed(last) if arrival.streamed else [])
        return last


def unscored(answer: Finished) -> Finished:
    return Finished([answer.best._replace(score=None, normalized_score=None)])


def streamed(answer: Finished) -> list[int]:
    """Returns the tokens that come before the answer, which brings its last one itself."""
    tokens = answer.best.token_ids
    return tokens if answer.best.stop_reason is StopReason.EOS else tokens[:-1]


class Oracle(Alone):
    """Knows also the answer of torch."""

    def __init__(self, offline: LocalEngine, model: Transformer) -> None:
        super().__init__(offline)
        self.ought = cache(
            lambda source, options: Reference(ReferenceLogProbs(model, list(source), options))
        )

    def check(self, arrival: Arrival, events: list[Event]) -> Finished:
        last = super().check(arrival, events)
        ought: Reference = self.ought(arrival.source, arrival.options)
        if ought.margin > 1e-4:
            assert last.best.token_ids == ought.answer.best.token_ids
            assert last.best.stop_reason is ought.answer.best.stop_reason
            assert last.best.score == pytest.approx(ought.answer.best.score, abs=1e-4)
        return last


@pytest.fixture(scope="module")
def oracle(tiny_offline: LocalEngine, tiny_model: Transformer) -> Oracle:
    return Oracle(tiny_offline, tiny_model)


@pytest.fixture(
    scope="module",
    params=[
        "tiny_int8_artifact",
        pytest.param("tiny_row_scaled_artifact", marks=pytest.mark.parity),
    ],
)
def rounded(request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    with LocalEngine(request.getfixturevalue(request.param), slots=8) as offline:
        yield offline


@pytest.fixture(scope="module")
def alone(rounded: LocalEngine) -> Alone:
    return Alone(rounded)


class Scenario:
    """Requests that arrive, are cancelled and are answered, step by step."""

    def __init__(self, runtime: Runtime, workers: int, slots: int, budget_tokens: int) -> None:
        self.scheduler = Scheduler(QueueLimits(max_queue=1000), workers=workers)
        self.workers = [
            Worker(runtime, self.scheduler, slots, budget_tokens, Observer(), str, idle_s=0.0)
            for _ in range(workers)
        ]
        self.requests: list[KeptRequest] = []
        self.cancellations: list[tuple[int, KeptRequest]] = []
        self.steps = 0

    def arrive(self, arrival: Arrival) -> None:
        request = arrival.request()
        self.requests.append(request)
        self.scheduler.submit(request)
        if arrival.cancelled_after is not None:
            self.cancellations.append((self.steps + arrival.cancelled_after, request))

    def step(self) -> None:
        for when, request in self.cancellations:
            if when == self.steps:
                self.scheduler.cancel(request)
        for worker in self.workers:
            keep(worker.step())
        self.steps += 1

    def run(self, plan: list[Arrival]) -> None:
        for arrival in plan:
            for _ in range(arrival.gap_steps):
                self.step()
            self.arrive(arrival)
        while self.scheduler.running or self.scheduler.queue_depth:
            self.step()


def run_scenario(scenario: Scenario, plan: list[Arrival], oracle: Alone) -> None:
    scenario.run(plan)
    assert (scenario.scheduler.running, scenario.scheduler.queue_depth) == (0, 0)
    scenario.scheduler.assert_idle()
    for request, arrival in zip(scenario.requests, plan, strict=True):
        ended = bool(request.events) and not isinstance(request.events[-1], Progress)
        assert ended or arrival.cancelled_after is not None, "a request was lost"
        if ended:
            oracle.check(arrival, request.events)


scenarios = given(
    plan=st.lists(arrivals, min_size=1, max_size=14),
    workers=st.integers(1, 2),
    slots=st.integers(1, 5),
    budget_tokens=st.sampled_from([1, 20, 512]),
)


@settings(SETTINGS, max_examples=40)
@scenarios
def test_staggered_rows_decode_as_alone_and_as_torch(
    tiny_runtime: Runtime,
    oracle: Oracle,
    plan: list[Arrival],
    workers: int,
    slots: int,
    budget_tokens: int,
) -> None:
    run_scenario(Scenario(tiny_runtime, workers, slots, budget_tokens), plan, oracle)


@settings(SETTINGS, max_examples=10)
@scenarios
def test_staggered_rows_decode_as_alone_where_all_is_rounded(
    rounded: LocalEngine,
    alone: Alone,
    plan: list[Arrival],
    workers: int,
    slots: int,
    budget_tokens: int,
) -> None:
    run_scenario(Scenario(rounded.runtime, workers, slots, budget_tokens), plan, alone)


class Counts(Observer):
    """Counts the ends of each request."""

    def __init__(self) -> None:
        self.ends: Counter[int] = Counter()

    def ended(self, request: Request, event: Event) -> None:
        self.ends[id(request)] += 1

    def cancelled(self, request: Request) -> None:
        self.ends[id(request)] += 1


@settings(SETTINGS, max_examples=15)
@given(plan=st.lists(attending, min_size=1, max_size=20), workers=st.integers(1, 3))
def test_threads_decode_as_alone_and_leave_nothing_behind(
    tiny_runtime: Runtime, oracle: Oracle, plan: list[Arrival], workers: int
) -> None:
    limits = EngineLimits(workers=workers, slots=4, max_queue=100, max_source_tokens_per_step=30)
    counts = Counts()
    engine = Engine(tiny_runtime, limits, keep, counts, str)
    engine.start()
    requests = [arrival.request() for arrival in plan]
    for request in requests:
        engine.submit(request)
    for request, arrival in zip(requests, plan, strict=True):
        if arrival.cancelled_after is not None:
            engine.cancel(request)
    for request, arrival in zip(list(requests), plan, strict=True):
        if arrival.cancelled_after is not None:
            continue
        answer = request.result
        if request.generate.lacks_attention(request.timeline):
            second = KeptRequest(replace(request.generate, answer=answer))
            engine.submit(second)
            requests.append(second)
            request.events[-1] = second.last
        oracle.check(arrival, request.events)
    deadline_s = time.monotonic() + PATIENCE_S
    while engine.slots_in_use or engine.queue_depth:
        assert time.monotonic() < deadline_s, "a slot is not given back"
        time.sleep(0.001)
    engine.stop()
    engine.assert_idle()
    assert counts.ends == Counter(id(request) for request in requests), "not counted once each"


def assert_worth_comparing(offline: LocalEngine) -> None:
    """Rows of one and the same answer could be swapped unseen."""
    answers = offline.decode([[token, token + 1, EOS] for token in range(4, 84)])
    assert len({tuple(answer.best.token_ids) for answer in answers}) > 60
    lengths = {len(answer.best.token_ids) for answer in answers}
    assert len(lengths) > 5, "targets end at few places"
    assert MAX_TARGET in lengths, "none is cut off"
    steps = [pair for answer in answers for pair in pairwise(answer.best.token_ids)]
    assert sum(a == b for a, b in steps) < 0.4 * len(steps), "they repeat one token"


def test_answers_are_worth_comparing(tiny_offline: LocalEngine) -> None:
    assert_worth_comparing(tiny_offline)


def test_rounded_answers_are_worth_comparing(
    rounded: LocalEngine, tiny_offline: LocalEngine
) -> None:
    assert_worth_comparing(rounded)
    sources = [[token, token + 1, EOS] for token in range(4, 84)]
    pairs = zip(rounded.decode(sources), tiny_offline.decode(sources), strict=True)
    assert all(one.best.score != other.best.score for one, other in pairs), "nothing is rounded"


def test_source_that_fails_leaves_the_others_alone(
    tiny_offline: LocalEngine, oracle: Oracle
) -> None:
    good = Arrival(
        source=(5, 6, EOS), max_length=9, min_length=0, streamed=False, scored=True, gap_steps=0,
        cancelled_after=None,
    )  # fmt: skip
    with pytest.raises(ServiceError):
        tiny_offline.decode([[5, 6, EOS], [VOCABULARY_SIZE, 6, EOS], [7, EOS]])
    oracle.check(good, [tiny_offline.decode([list(good.source)], good.options)[0]])
