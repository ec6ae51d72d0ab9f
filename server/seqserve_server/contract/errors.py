"""Errors of the service; :mod:`~seqserve_server.front.telemetry.call_record` has their status."""

import copyreg
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from seqserve.errors import SeqserveError


class Stage(Enum):
    """Stage of a request."""

    QUEUE = "queue"
    DECODE = "decode"


class ServiceError(SeqserveError):
    """Base of all errors that end one call.

    Subclasses with fields are dataclasses. The engine process sends errors as pickles.
    """

    template: ClassVar[str] = ""
    """The message, with the names of fields in braces; empty if the argument is the message."""

    def __str__(self) -> str:
        return self.template.format_map(vars(self)) if self.template else super().__str__()

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


@dataclass(eq=False)
class InvalidRequest(ServiceError):
    """A field of the request is wrong."""

    field: str
    """Name of the field in the proto."""
    reason: str
    """The fault, or the valid values."""
    template = "{field}: {reason}"


class Unreadable(InvalidRequest):
    """A request that protobuf cannot parse; handlers get it instead of the request."""

    def __init__(self, reason: str, data: bytes) -> None:
        super().__init__("request", reason)
        self.data = data


class ModelNotFound(ServiceError):
    """The repository has no such model or version."""


class Bound(Enum):
    """Bound of the queue for which a request was refused."""

    LENGTH = "queue_full"
    TOKENS = "queue_tokens"
    WAIT = "queue_wait"
    CALLER = "caller_share"
    DEADLINE = "deadline"
    ATTENTION = "attention"
    ANSWERS = "answer_memory"
    TEXTS = "text_memory"
    BACKLOG = "backlog"


@dataclass(eq=False)
class QueueFull(ServiceError):
    """The queue is full, or the request would wait too long."""

    reason: str
    retry_after_s: float
    """Time until the requests ahead of this one have left the queue."""
    bound: Bound = Bound.LENGTH
    spacing_s: float = 0.0
    """Time by which the client should space its further retries."""
    template = "{reason}"


@dataclass(eq=False)
class DeadlinePassed(ServiceError):
    """The deadline passed before the answer was complete."""

    where: Stage
    template = "the deadline passed in {where.value}"


class ModelUnavailable(ServiceError):
    """The model is loading or draining, or its engine is being restarted."""


class ModelNotLoaded(ServiceError):
    """The model failed to load or was unloaded; retrying does not help."""


@dataclass(eq=False)
class NoScorer(ServiceError):
    """The model was exported without the graph for scores and attention."""

    model: str
    template = (
        "{model} has no scorer.onnx, so it can neither score targets nor show attention;"
        " export it again"
    )


class Draining(ServiceError):
    """The server is shutting down and takes no new calls."""

    def __init__(self, message: str = "the server is shutting down; call another one") -> None:
        super().__init__(message)


class Unauthenticated(ServiceError):
    """The call has no token or an unknown one; the message reveals not which."""

    template = "send a valid token as metadata: `authorization: Bearer TOKEN`"


@dataclass(eq=False)
class PermissionDenied(ServiceError):
    """The token does not allow the call."""

    scope: str
    """Scope that the method needs."""
    template = (
        "the token lacks the scope {scope!r}, which this method needs; `seqserve token"
        " --scope {scope}` makes one that has it"
    )


@dataclass(eq=False)
class QuotaUsed(ServiceError):
    """A quota of the token is used up."""

    quota: str
    ends: str
    retry_after_s: float
    template = "the quota of {quota} is used up; it is renewed at {ends}"


class EngineFault(ServiceError):
    """An internal error; its cause is in the log."""


class ArtifactError(SeqserveError):
    """An artifact is damaged or invalid; the message names the file or the manifest's field."""


class ProviderError(SeqserveError):
    """The execution provider is not available; the message tells how to install it."""


class StartupError(SeqserveError):
    """The server cannot start with these options; the message tells what to change."""


MAX_NAME = 64
"""Characters that a message repeats of a name that a client made up."""
MAX_LISTED = 20
"""Names in a message, enough to find the right one."""


def truncated_list(names: Iterable[str]) -> str:
    """Joins the first names, and counts the others."""
    names = list(names)
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
