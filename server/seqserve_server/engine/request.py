"""One request inside the engine: its spec, and how far it is."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from seqserve_server.contract.errors import DeadlinePassed, Stage
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Hypothesis,
    StopReason,
    Timeline,
)
from seqserve_server.contract.options import DecodingOptions, missing_terms
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.engine.packing import EncodedSource


class RequestState(Enum):
    """How far a request is. It moves down this list, and may skip states."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Request:
    """A spec and the state of its execution."""

    spec: Spec
    request_id: int = 0
    origin: Any = None
    """The connection that sent it and gets its events."""
    state: RequestState = RequestState.NEW
    is_late: bool = False
    passed_rows: int = 0
    """Slots that later requests took first, because this one needs more than were free."""
    is_encoded_ahead: bool = False
    """Whether a worker encodes its source while it waits."""
    encoded: EncodedSource | None = None
    tokens_done: int = 0
    """Generated tokens when it left its slots, whether or not they reach the caller."""
    timeline: Timeline = field(init=False)
    work: int = field(init=False)
    rows: int = field(init=False)
    """Slots that it takes."""
    options: DecodingOptions = field(init=False)
    """Of a request that generates; others have none."""

    def __post_init__(self) -> None:
        spec = self.spec
        self.work, self.rows = spec.work, spec.rows
        self.timeline = Timeline(arrived_s=spec.arrived_s)
        if isinstance(spec, GenerateSpec):
            self.options = spec.options

    @property
    def generate(self) -> GenerateSpec:
        """The spec of a request that generates."""
        assert isinstance(self.spec, GenerateSpec)
        return self.spec

    @property
    def answer(self) -> Finished | None:
        """The finished hypotheses whose attention is requested; None in every other request."""
        return self.spec.answer if isinstance(self.spec, GenerateSpec) else None

    def count_tokens(self, answer: Finished) -> None:
        """Stores the number of tokens of the requested hypotheses."""
        hypotheses = answer.hypotheses[: self.options.num_hypotheses]
        self.tokens_done = sum(len(each.token_ids) for each in hypotheses)

    def expired(self, now_s: float) -> Event:
        """Ends a wait that was too long: with an empty answer where the time limit has come."""
        spec = self.spec
        if spec.deadline_s is not None and spec.deadline_s <= now_s:
            return Failed(DeadlinePassed(Stage.QUEUE))
        self.timeline.finished_s = now_s
        lacking = tuple(missing_terms(self.options.terms, []))
        return Finished([Hypothesis([], None, StopReason.TIME_LIMIT, unmet_terms=lacking)])


Events = list[tuple[Request, Event]]
