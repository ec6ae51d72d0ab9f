"""Threads of an engine: each request as alone and counted once, and nothing is left behind."""

import time
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import KeptRequest, keep

from seqserve_server.contract.events import Event
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Request
from seqserve_server.engine.runtime import Runtime

from .drawn_requests import SETTINGS, plain
from .simulation import Arrival, arrivals_of, assert_as_alone

PATIENCE_S = 60.0


class Counts(Observer):
    def __init__(self) -> None:
        self.ends: Counter[int] = Counter()

    def ended(self, request: Request, event: Event) -> None:
        self.ends[id(request)] += 1

    def cancelled(self, request: Request) -> None:
        self.ends[id(request)] += 1


@settings(SETTINGS, max_examples=15)
@given(plan=st.lists(arrivals_of(plain()), min_size=1, max_size=20), workers=st.integers(1, 3))
def test_threads_decode_as_alone_and_leave_nothing_behind(
    tiny_runtime: Runtime, plan: list[Arrival], workers: int
) -> None:
    limits = EngineLimits(workers=workers, slots=4, max_queue=100, max_source_tokens_per_step=30)
    counts = Counts()
    engine = Engine(tiny_runtime, limits, keep, counts, str)
    engine.start()
    requests = [arrival.request() for arrival in plan]
    seconds: list[KeptRequest] = []
    for request in requests:
        engine.submit(request)
    for request, arrival in zip(requests, plan, strict=True):
        if arrival.cancelled_after is not None:
            engine.cancel(request)
    kept = [number for number, arrival in enumerate(plan) if arrival.cancelled_after is None]
    for request in (requests[number] for number in kept):
        answer = request.result
        if request.generate.lacks_attention(request.timeline):
            second = KeptRequest(replace(request.generate, answer=answer))
            engine.submit(second)
            seconds.append(second)
            request.events[-1] = second.last
    assert_as_alone(tiny_runtime, [requests[n] for n in kept], [plan[n] for n in kept])
    deadline_s = time.monotonic() + PATIENCE_S
    while engine.slots_in_use or engine.queue_depth:
        assert time.monotonic() < deadline_s, "a slot is not given back"
        time.sleep(0.001)
    engine.stop()
    assert_idle(engine)
    expected = Counter(id(request) for request in (*requests, *seconds))
    assert counts.ends == expected, "not counted once each"
