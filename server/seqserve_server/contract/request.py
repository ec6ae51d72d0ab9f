"""One request on its way through the engine.

Times are in seconds; ``time_limit_s`` is a duration, the others are moments of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.options import DecodingOptions


class Priority(Enum):
    """Who goes first; the names of the wire."""

    NORMAL = "normal"
    LOW = "low"


class RequestState(Enum):
    """How far a request is. It moves down this list, and may leave it anywhere."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    DECODED = "decoded"
    """It has left its slots, and waits to be told what it attended to."""
    DONE = "done"


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """A source on its way through the engine."""

    source: list[int]
    """Token ids, the end token last."""
    options: DecodingOptions
    receive: Callable[[Event], None]
    """Takes every event of the request."""
    deadline_s: float | None = None
    """On the monotonic clock."""
    streamed: bool = False
    """Whether progress is told at every step."""
    target: list[int] | None = None
    """Token ids to be scored, where nothing is to be generated."""
    wants_attention: bool = False
    """Whether the attention of the target is wanted beside its scores."""
    caller: str = ""
    """Who asks; the queue is fair among callers."""
    priority: Priority = Priority.NORMAL
    number: int = 0
    """What stands for it between two processes."""
    call_id: str = ""
    """Id of the call that it is of, for the log."""
    state: RequestState = RequestState.NEW
    passed_rows: int = 0
    """Slots that others have taken before it, because it needs more than were free."""
    tokens_done: int = 0
    """Tokens of its hypotheses when it left its slots, whether or not anybody is told them."""
    timeline: Timeline = field(default_factory=Timeline)

    @property
    def limit_s(self) -> float:
        """When its time limit is reached, on the monotonic clock; infinite without one."""
        return self.timeline.arrived_s + self.options.time_limit_s

    @property
    def begin_by_s(self) -> float:
        """Latest time at which it makes sense to begin: its deadline or its time limit; infinite
        without either."""
        return self.limit_s if self.deadline_s is None else min(self.limit_s, self.deadline_s)

    @property
    def work(self) -> int:
        """Tokens that it is expected to cost: those read, and as many written in each row."""
        if self.target is not None:
            return len(self.source) + len(self.target)
        options = self.options
        written = max(len(self.source), options.min_decoding_length)
        return len(self.source) + options.rows * min(written, options.max_decoding_length)


Events = list[tuple[Request, Event]]
"""Events and the requests they belong to, in order."""
