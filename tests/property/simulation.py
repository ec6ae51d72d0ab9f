"""Requests that arrive, are cancelled and are answered, turn by turn, each as if alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import KeptRequest

from seqserve_server.contract.events import Finished, Progress, StopReason
from seqserve_server.contract.limits import EngineLimits, QueueLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.local_engine import deliver, generate
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.request import Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.scorer import Scorer
from seqserve_server.engine.worker import Worker

from .drawn_requests import sources, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    source: tuple[int, ...]
    options: DecodingOptions
    streamed: bool = False
    gap_turns: int = 0
    """Turns of the workers between the arrival before and this one."""
    cancelled_after: int | None = None
    """Turns after which it is cancelled."""

    def request(self) -> KeptRequest:
        spec = GenerateSpec(source=list(self.source), options=self.options, streamed=self.streamed)
        return KeptRequest(spec)


def arrivals_of(options: st.SearchStrategy[DecodingOptions]) -> st.SearchStrategy[Arrival]:
    return st.builds(
        Arrival,
        source=sources,
        options=options,
        streamed=st.booleans(),
        gap_turns=st.integers(0, 4),
        cancelled_after=st.none() | st.none() | st.integers(0, 8),
    )


def make_engine(
    runtime: Runtime,
    deliver: Deliver = deliver,
    observer: Observer | None = None,
    *,
    workers: int = 1,
    slots: int,
) -> Engine:
    limits = EngineLimits(
        workers=workers, slots=slots, max_queue=100, max_source_tokens_per_step=30
    )
    return Engine(runtime, limits, deliver, observer or Observer(), text_of)


def alone(runtime: Runtime, source: tuple[int, ...], options: DecodingOptions) -> Finished:
    """Decodes one source in an engine that has never run another."""
    engine = make_engine(runtime, slots=options.rows)
    engine.start()
    [answer] = generate(engine, [GenerateSpec(source=list(source), options=options)])
    engine.stop()
    return answer


class Simulation:
    """Requests that arrive, are cancelled and are answered, turn by turn."""

    def __init__(self, runtime: Runtime, workers: int, slots: int, budget_tokens: int) -> None:
        self.scheduler = Scheduler(
            QueueLimits(max_queue=1000), workers=workers, slots=workers * slots
        )
        self.workers = [
            Worker(runtime, self.scheduler, slots, budget_tokens, Observer(), text_of, idle_s=0.0)
            for _ in range(workers)
        ]
        self.score_queue = ScoreQueue(QueueLimits(max_queue=1000))
        self.scorer = Scorer(runtime, self.score_queue, idle_s=0.0)
        self.requests: list[KeptRequest] = []
        self.cancellations: list[tuple[int, KeptRequest]] = []
        # The second request of an answer that lacks attention, and the first one.
        self.seconds: dict[Request, KeptRequest] = {}
        self.turns = 0

    def arrive(self, arrival: Arrival) -> None:
        request = arrival.request()
        self.requests.append(request)
        self.scheduler.submit(request)
        if arrival.cancelled_after is not None:
            self.cancellations.append((self.turns + arrival.cancelled_after, request))

    def turn(self) -> None:
        for when, request in self.cancellations:
            if when == self.turns:
                self.scheduler.cancel(request)
        for worker in self.workers:
            for request, event in worker.step():
                assert isinstance(request, KeptRequest)
                if isinstance(event, Finished) and request.generate.lacks_attention(
                    request.timeline
                ):
                    second = Request(replace(request.generate, answer=event))
                    self.seconds[second] = request
                    self.score_queue.submit(second)
                else:
                    request.receive(event)
        for second, event in self.scorer.step():
            self.seconds.pop(second).receive(event)
        self.turns += 1

    @property
    def is_over(self) -> bool:
        return not (self.scheduler.running or self.scheduler.queue_depth or self.seconds)

    def run(self, plan: Sequence[Arrival]) -> None:
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
            assert_idle(worker)


def assert_as_alone(runtime: Runtime, pairs: Iterable[tuple[KeptRequest, Arrival]]) -> None:
    for request, arrival in pairs:
        is_finished = bool(request.events) and isinstance(request.events[-1], Finished)
        assert is_finished or arrival.cancelled_after is not None, "a request was lost"
        if not is_finished:
            continue
        # As text, in which what is not a number is like itself and every bit of others is seen.
        assert repr(request.result) == repr(alone(runtime, arrival.source, arrival.options))
        assert_streamed(request, arrival)


def assert_streamed(request: KeptRequest, arrival: Arrival) -> None:
    """Tokens come as they are decoded; the last one of an answer comes with the answer."""
    *progress, answer = request.events
    assert isinstance(answer, Finished)
    tokens = [
        token for event in progress if isinstance(event, Progress) for token in event.token_ids
    ]
    if not arrival.streamed or arrival.options.rows > 1:
        assert not tokens
    elif answer.best.stop_reason is StopReason.STOP_SEQUENCE:
        kept = answer.best.token_ids
        assert tokens[: len(kept)] == kept[: len(tokens)]
    else:
        ends = arrival.options.force_end_token or answer.best.stop_reason is StopReason.EOS
        assert tokens == answer.best.token_ids[: None if ends else -1]


def assert_mixed_as_alone(
    runtime: Runtime, plan: list[Arrival], workers: int, slots: int, budget_tokens: int
) -> None:
    simulation = Simulation(runtime, workers, slots, budget_tokens)
    simulation.run(plan)
    simulation.assert_empty()
    assert_as_alone(runtime, zip(simulation.requests, plan, strict=True))
