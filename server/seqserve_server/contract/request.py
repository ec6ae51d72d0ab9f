"""A request to an engine: built once in the front, sent as it is, never changed.

Fields that end in ``_s`` are moments of the monotonic clock, in seconds.
"""

import math
import time
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any

from seqserve_server.contract.events import Finished, Timeline
from seqserve_server.contract.options import DecodingOptions


class Priority(StrEnum):
    """Priorities of requests, with the values of the API."""

    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """Fields of every request."""

    source: list[int]
    """Source token ids, the end token last."""
    arrived_s: float = field(default_factory=time.monotonic)
    deadline_s: float | None = None
    client_id: str = ""
    """The client that the request counts for; the queue is fair among clients."""
    flow_id: str = ""
    """The connection, or the call of a bulk request; flows of one client take turns."""
    is_bulk: bool = False
    """Whether the request is one of many of a call, which waits rather than fails."""
    call_id: str = ""
    priority: Priority = Priority.NORMAL
    start_token: int | None = None
    """The token id that the decoder reads first; None for the model's."""

    @property
    def rows(self) -> int:
        """Slots that the request takes."""
        return 1

    @property
    def limit_s(self) -> float:
        """When the time limit is reached; infinite without one."""
        return math.inf

    @property
    def begin_by_s(self) -> float:
        """Latest time at which it makes sense to start: the deadline or the time limit."""
        return self.limit_s if self.deadline_s is None else min(self.limit_s, self.deadline_s)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a default as None, which is the shortest."""
        kind: Any = type(self)
        values = [
            None if (value := getattr(self, name)) == default else value
            for name, default in _defaults(kind)
        ]
        return _spec, (kind, *values)


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((entry.name, entry.default) for entry in fields(kind))


def _spec(kind: Any, *values: Any) -> Any:
    named = zip(_defaults(kind), values, strict=True)
    return kind(**{name: value for (name, _), value in named if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateSpec(RequestSpec):
    """A request to generate hypotheses for a source.

    Attention takes a second request: the same spec with the first one's ``answer``. The engine adds
    the attention of its hypotheses, and ranks them anew if there is a coverage penalty.
    """

    options: DecodingOptions
    streamed: bool = False
    """Whether new tokens are sent after every step."""
    draft: tuple[int, ...] = ()
    """Token ids that the target may have, the end token last; they never change it."""
    answer: Finished | None = None
    """Finished hypotheses that lack only their attention; set in the second request."""

    @property
    def rows(self) -> int:
        """Slots that the request takes."""
        return self.options.rows

    @property
    def limit_s(self) -> float:
        """When the time limit is reached; infinite without one."""
        return self.arrived_s + self.options.time_limit_s

    @property
    def work(self) -> int:
        """Expected cost in tokens: the source, and as many target tokens in each row."""
        options = self.options
        written = max(len(self.source), options.min_decoding_length)
        return len(self.source) + options.rows * min(written, options.max_decoding_length)

    @property
    def reports_progress(self) -> bool:
        """Whether tokens are sent as they come; of several rows none is known to be the best."""
        return self.streamed and self.options.rows == 1

    def lacks_attention(self, timeline: Timeline) -> bool:
        """Returns whether an answer that has begun needs another request for its attention."""
        is_first = self.answer is None
        return is_first and self.options.needs_attention and timeline.encode_began_s > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSpec(RequestSpec):
    """A request to score a given target."""

    target: list[int]
    """Target token ids, the end token among them where it is scored too."""
    wants_attention: bool = False
    """Whether the attention of every layer and head is returned with the scores."""

    @property
    def work(self) -> int:
        """Expected cost in tokens."""
        return len(self.source) + len(self.target)


Spec = GenerateSpec | ScoreSpec
