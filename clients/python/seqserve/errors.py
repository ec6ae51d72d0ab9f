"""The error tree of seqserve; its root is the parent of every error the project raises on purpose.

:mod:`seqserve._transport.status` has the table from gRPC status to class. Any other status becomes
a plain :class:`CallError`.
"""


class SeqserveError(Exception):
    """Base of every error that seqserve raises on purpose."""


class OptionError(SeqserveError):
    """A flag, a variable or a value of a configuration file is wrong."""


class NotWritten(SeqserveError):
    """An output cannot be written, for instance because the disk is full."""


class MisplacedClient(SeqserveError):
    """A client is used outside the event loop or the process that it belongs to."""


class CallError(SeqserveError):
    """A call to a server failed.

    Attributes:
        code: Name of the gRPC status, such as ``"UNAVAILABLE"``.
        details: Message of the server.
        field: The wrong field of the request; empty if no field is wrong.
        retry_after_s: Seconds after which to retry; None if the server gave no advice.
        request_id: Id of the call in the server's log; empty if no server answered.
        reason: Why the call failed, for programs, such as ``"QUEUE_FULL"`` if
            errors share a code. Empty if the server did not say.
    """

    def __init__(
        self,
        code: str,
        details: str,
        *,
        field: str = "",
        retry_after_s: float | None = None,
        request_id: str = "",
        reason: str = "",
    ) -> None:
        # The base gets both positional arguments, so that the error can be pickled.
        super().__init__(code, details)
        self.code = code
        self.details = details
        self.field = field
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.code}: {self.details}"


class InvalidArgument(CallError):
    """A field of the request is wrong."""


def invalid_argument(field: str, reason: str) -> InvalidArgument:
    """Returns the error for an argument that the client refuses before a call."""
    return InvalidArgument("INVALID_ARGUMENT", f"{field}: {reason}", field=field)


class NotFound(CallError):
    """The server has no such model or version."""


class FailedPrecondition(CallError):
    """The model could not be loaded, or was unloaded; a retry does not help."""


class Overloaded(CallError):
    """The server's queue is full."""


class DeadlineExceeded(CallError):
    """The deadline passed before the answer was ready."""


class Cancelled(CallError):
    """The call was cancelled, by this client or by another side.

    Attributes:
        by_server: Whether the server, or a proxy before it, cancelled the call.
    """

    by_server = False


class Unauthenticated(CallError):
    """The call carried no token, or a wrong one."""


class PermissionDenied(CallError):
    """The token does not allow this call."""


class Unavailable(CallError):
    """The server is unreachable, loading or draining, or the connection broke."""


class Unreachable(Unavailable):
    """No connection to a server could be made; the details say why."""


class InternalError(CallError):
    """A fault of the server; the details have the id of its log entry."""
