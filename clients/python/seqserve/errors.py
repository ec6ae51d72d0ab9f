"""The error tree of seqserve; its root is the parent of every error the project raises on purpose.

    SeqserveError                  anything below
    ├── OptionError                a flag, variable or configuration value is wrong
    └── CallError                  a call to a server failed; .code and .details say how
        ├── InvalidArgument        a field of the request is wrong; .field names it
        ├── NotFound               no such model or version
        ├── FailedPrecondition     the model is not loaded, and waiting does not help
        ├── Overloaded             the server's queue is full; .retry_after_s says when to try again
        ├── DeadlineExceeded       the deadline passed before the answer was ready
        ├── Cancelled              the call was cancelled
        ├── Unauthenticated        no token, or a wrong one
        ├── PermissionDenied       the token does not allow this call
        ├── Unavailable            no server there, or it is loading or draining
        └── InternalError          a fault of the server; .details carries the id in its log

:mod:`seqserve._transport.status` has the table from gRPC status to class. A status without a class
of its own becomes a plain :class:`CallError`.
"""


class SeqserveError(Exception):
    """Base of every error that seqserve raises on purpose."""


class OptionError(SeqserveError):
    """A flag, a variable or a value of a configuration file is wrong."""


class CallError(SeqserveError):
    """A call to a server failed.

    Attributes:
        code: Name of the gRPC status, such as ``"UNAVAILABLE"``.
        details: What the server said.
        field: Field of the request that was wrong; empty where none is to blame.
        retry_after_s: Seconds after which a new try makes sense; None where the server did not say.
        request_id: What the server's log calls the call; empty where no server answered.
    """

    def __init__(
        self,
        code: str,
        details: str,
        *,
        field: str = "",
        retry_after_s: float | None = None,
        request_id: str = "",
    ) -> None:
        """Keeps what the server said."""
        # Both positional arguments go to the base, so that the error survives pickling.
        super().__init__(code, details)
        self.code = code
        self.details = details
        self.field = field
        self.retry_after_s = retry_after_s
        self.request_id = request_id

    def __str__(self) -> str:
        """Gives the status and what the server said, in one line."""
        return f"{self.code}: {self.details}"


class InvalidArgument(CallError):
    """A field of the request is wrong."""


class NotFound(CallError):
    """The server has no such model or version."""


class FailedPrecondition(CallError):
    """The model could not be loaded, or was unloaded; it stays so until somebody changes that."""


class Overloaded(CallError):
    """The server's queue is full."""


class DeadlineExceeded(CallError):
    """The deadline passed before the answer was ready."""


class Cancelled(CallError):
    """The call was cancelled."""


class Unauthenticated(CallError):
    """The call carried no token, or a wrong one."""


class PermissionDenied(CallError):
    """The token does not allow this call."""


class Unavailable(CallError):
    """No server answers there, the connection broke, or the server is loading or draining."""


class InternalError(CallError):
    """A fault of the server; the details carry the id under which its log has more."""
