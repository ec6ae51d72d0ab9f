"""The seqserve client: text in, generated text out, over gRPC.

Needs grpcio and protobuf and nothing else; the parts of seqserve that train, export and serve are
packages beside this one, which they import and which never imports them.
"""

import os

__version__ = "0.1.0"

# Below that level gRPC writes to standard error what the other side of a connection has said, as it
# is. It reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from seqserve._async.client import AsyncClient
from seqserve._sync.client import Client
from seqserve.attention import AttentionResult, AttentionWeights
from seqserve.decoding import GenerateOptions, Priority
from seqserve.errors import (
    CallError,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
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
from seqserve.results import (
    Hypothesis,
    Model,
    ModelState,
    Piece,
    Result,
    ScoreResult,
    StopReason,
    Timings,
    TopToken,
)
from seqserve.retry import RetryPolicy
from seqserve.tls import TLS

__all__ = [
    "TLS",
    "AsyncClient",
    "AttentionResult",
    "AttentionWeights",
    "CallError",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "FailedPrecondition",
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
    "Priority",
    "Result",
    "RetryPolicy",
    "ScoreResult",
    "SeqserveError",
    "StopReason",
    "Timings",
    "TopToken",
    "Unauthenticated",
    "Unavailable",
    "__version__",
]
