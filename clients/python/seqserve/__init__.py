"""The seqserve client: text in, generated text out, over gRPC.

Needs grpcio and protobuf and nothing else; the parts of seqserve that train, export and serve are
packages beside this one, which they import and which never imports them.
"""

__version__ = "0.1.0"

from seqserve.async_client import AsyncClient
from seqserve.client import Client
from seqserve.errors import (
    CallError,
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    NotFound,
    OptionError,
    Overloaded,
    PermissionDenied,
    SeqserveError,
    Unauthenticated,
    Unavailable,
)
from seqserve.messages import GenerateOptions
from seqserve.results import Hypothesis, Model, ModelState, Piece, Result, StopReason, Timings
from seqserve.retry import RetryPolicy

__all__ = [
    "AsyncClient",
    "CallError",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "GenerateOptions",
    "Hypothesis",
    "InternalError",
    "InvalidArgument",
    "Model",
    "ModelState",
    "NotFound",
    "OptionError",
    "Overloaded",
    "PermissionDenied",
    "Piece",
    "Result",
    "RetryPolicy",
    "SeqserveError",
    "StopReason",
    "Timings",
    "Unauthenticated",
    "Unavailable",
    "__version__",
]
