"""The seqserve client: text in, generated text out, over gRPC.

Needs only grpcio and protobuf. The packages that train, export and serve import this one; it never
imports them.
"""

import os

__version__ = "0.2.0"

# Below this level gRPC writes to standard error whatever the peer has sent. It reads the variable
# when it is imported.
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
    MisplacedClient,
    NotFound,
    OptionError,
    Overloaded,
    PermissionDenied,
    SeqserveError,
    Unauthenticated,
    Unavailable,
    Unreachable,
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
    "MisplacedClient",
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
    "Unreachable",
    "__version__",
]
