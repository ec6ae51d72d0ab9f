"""A worker of an engine, stepped by a test."""

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest
from tests.unit.server.engine.fake_runtime import EOS, FakeRuntime, detokenize, expected
from tests.unit.server.engine.idle import assert_idle
from tests.unit.server.engine.requests import generation

from seqserve_server.contract.errors import EngineFault
from seqserve_server.contract.events import Event, Failed
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine import worker as module
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.request import Request
from seqserve_server.engine.worker import Worker


class Notes(Observer):
    """An observer that keeps every report."""

    def __init__(self) -> None:
        self.encodings: list[list[int]] = []
        self.steps: list[int] = []
        self.first: list[Request] = []
        self.cancellations: list[Request] = []
        self.ends: list[tuple[Request, Event]] = []
        self.drafted_tokens: list[tuple[int, int]] = []

    def encoded(self, lengths: Sequence[int], duration_s: float) -> None:
        self.encodings.append(list(lengths))

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        assert 0 <= outside_s <= duration_s
        self.steps.append(rows)

    def drafted(self, drafted: int, accepted: int) -> None:
        self.drafted_tokens.append((drafted, accepted))

    def first_tokens(self, requests: Sequence[Request]) -> None:
        self.first += requests

    def ended(self, request: Request, event: Event) -> None:
        self.ends.append((request, event))

    def cancelled(self, request: Request) -> None:
        self.cancellations.append(request)


class Stepper:
    """A worker that the test steps, over a fake runtime unless another is given, and its events."""

    def __init__(
        self,
        slots: int = 4,
        budget_tokens: int = 100,
        runtime: Any = None,
        decode: Callable[[Sequence[int]], str] = detokenize,
    ) -> None:
        self.runtime = runtime or FakeRuntime()
        self.notes = Notes()
        self.scheduler = Scheduler(QueueLimits(max_queue=100))
        self.worker = Worker(
            self.runtime, self.scheduler, slots, budget_tokens, self.notes, decode, idle_s=0.0
        )
        self.events: list[tuple[Request, Event]] = []

    def submit(
        self, *source: int, longest: int = 10, shortest: int = 0, scored: bool = True, **more: Any
    ) -> Request:
        options = DecodingOptions(
            max_decoding_length=longest, min_decoding_length=shortest, return_scores=scored
        )
        request = generation([*source, EOS], options, **more)
        self.scheduler.submit(request)
        return request

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.events += self.worker.step()

    def finish(self, *decoded: Request) -> None:
        """Steps until nothing is left; these requests must have their whole answers then."""
        while self.scheduler.queue_depth or self.scheduler.running:
            self.step()
        self.assert_decoded(*decoded)
        assert_idle(self.scheduler)
        assert not self.notes.ends, "the engine reports that"

    def fail(self) -> None:
        """Runs a step that fails, as an engine does."""
        with pytest.raises(RuntimeError):
            self.step()
        self.events += self.worker.fail(EngineFault("a step failed"))

    def step_at(self, now_s: float) -> None:
        """Runs a step at the end of which it is so late."""
        with mock.patch.object(module.time, "monotonic", lambda: now_s):
            self.step()

    def error_of(self, request: Request) -> Exception:
        """Gives the error of a request, which must be its only event."""
        [failed] = self.events_of(request)
        assert isinstance(failed, Failed)
        return failed.error

    def events_of(self, request: Request) -> list[Event]:
        return [event for owner, event in self.events if owner is request]

    def assert_decoded(self, *requests: Request) -> None:
        for request in requests:
            assert self.events_of(request) == [expected(request.spec.source, request.options)]

    def run_long(self, *words: int) -> list[Request]:
        """Starts rows that run for some steps."""
        requests = [self.submit(word, shortest=9) for word in words]
        self.step()
        assert self.rows == requests
        return requests

    @property
    def rows(self) -> list[Request | None]:
        return self.worker._rows.requests
