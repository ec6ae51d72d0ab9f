"""Requests for tests of the engine, made without a front."""

import math
import threading
from typing import Any

from seqserve_server.contract.events import Event, Failed, Finished, Progress
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, ScoreSpec, Spec
from seqserve_server.engine.request import Events, Request

PATIENCE_S = 60.0


def generation(source: list[int], options: DecodingOptions, **more: Any) -> Request:
    """Makes a request to generate; ``more`` are fields of its spec."""
    return Request(GenerateSpec(source=source, options=options, **more))


def scoring(source: list[int], target: list[int], **more: Any) -> Request:
    """Makes a request to score a target; ``more`` are fields of its spec."""
    return Request(ScoreSpec(source=source, target=target, **more))


def queued(
    length: int = 3,
    *,
    caller: str = "",
    flow: str = "",
    rows: int = 1,
    time_limit_s: float = math.inf,
    **more: Any,
) -> Request:
    """Makes a request whose work is twice its length; ``more`` are fields of its spec."""
    options = DecodingOptions(max_decoding_length=99, beam_size=rows, time_limit_s=time_limit_s)
    return generation([4] * length, options, client_id=caller, flow_id=flow, **more)


class KeptRequest(Request):
    """A request that keeps its events and can be waited for."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.events: list[Event] = []
        self._ended = threading.Event()

    def receive(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, Progress):
            self._ended.set()

    @property
    def last(self) -> Event:
        """Waits for the last event."""
        assert self._ended.wait(PATIENCE_S), "a request was lost"
        return self.events[-1]

    @property
    def error(self) -> Exception:
        """Waits for the last event, which must be a failure."""
        assert isinstance(self.last, Failed), self.last
        return self.last.error

    @property
    def result(self) -> Finished:
        assert isinstance(self.last, Finished), self.last
        return self.last


def keep(events: Events) -> None:
    """Delivers events to requests that keep them."""
    for request, event in events:
        assert isinstance(request, KeptRequest)
        request.receive(event)
