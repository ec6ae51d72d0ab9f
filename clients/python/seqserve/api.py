"""Every name that the package ``seqserve`` offers; it imports them when one is used first."""

from __future__ import annotations

from seqserve._async.client import AsyncClient
from seqserve._sync.client import Client
from seqserve.arguments import GenerateOptions, ModelOptions, Priority, SourceOptions
from seqserve.attention import (
    AttentionResult,
    AttentionWeights,
    ScoreResult,
    TokenizeResult,
)
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
from seqserve.model import Glossary, LanguagePair, Model, ModelState
from seqserve.results import (
    AlignedToken,
    DetectedLanguage,
    Hypothesis,
    KeptText,
    Leg,
    Piece,
    Placement,
    Result,
    Segment,
    StopReason,
    Timings,
    TopToken,
)
from seqserve.retry import RetryPolicy
from seqserve.text_warnings import SourceWarning, TextWarning, TextWarningKind
from seqserve.tls import TLS

__all__ = [
    "TLS",
    "AlignedToken",
    "AsyncClient",
    "AttentionResult",
    "AttentionWeights",
    "CallError",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "DetectedLanguage",
    "FailedPrecondition",
    "GenerateOptions",
    "Glossary",
    "Hypothesis",
    "InternalError",
    "InvalidArgument",
    "KeptText",
    "LanguagePair",
    "Leg",
    "MisplacedClient",
    "Model",
    "ModelOptions",
    "ModelState",
    "NotFound",
    "OptionError",
    "Overloaded",
    "PermissionDenied",
    "Piece",
    "Placement",
    "Priority",
    "Result",
    "RetryPolicy",
    "ScoreResult",
    "Segment",
    "SeqserveError",
    "SourceOptions",
    "SourceWarning",
    "StopReason",
    "TextWarning",
    "TextWarningKind",
    "Timings",
    "TokenizeResult",
    "TopToken",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
]
