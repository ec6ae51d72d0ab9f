"""From a gRPC status and its details to an error of :mod:`seqserve.errors`.

Details come as a ``google.rpc.Status`` in the trailing metadata, with ``ErrorInfo``, ``BadRequest``
and ``RetryInfo`` inside.
Source: google/rpc/status.proto and google/rpc/error_details.proto of googleapis.
"""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf import any_pb2, duration_pb2, message_factory, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from seqserve import errors
from seqserve.metadata import REQUEST_ID
from seqserve.v1 import generation_pb2

METADATA_KEY = "grpc-status-details-bin"

# The parts of both files that the client reads, in a separate pool: gRPC does not depend on
# googleapis-common-protos, and generated copies would clash with it in a process that has it.
_DECLARATION = """
name: "google/rpc/status.proto" package: "google.rpc" syntax: "proto3"
dependency: "google/protobuf/any.proto" dependency: "google/protobuf/duration.proto"
message_type { name: "Status"
  field { name: "details" number: 3 label: LABEL_REPEATED
          type: TYPE_MESSAGE type_name: ".google.protobuf.Any" } }
message_type { name: "ErrorInfo"
  field { name: "reason" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
message_type { name: "BadRequest"
  field { name: "field_violations" number: 1 label: LABEL_REPEATED
          type: TYPE_MESSAGE type_name: ".google.rpc.FieldViolation" } }
message_type { name: "FieldViolation"
  field { name: "field" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
message_type { name: "RetryInfo"
  field { name: "retry_delay" number: 1 label: LABEL_OPTIONAL
          type: TYPE_MESSAGE type_name: ".google.protobuf.Duration" } }
"""


def read_details(data: bytes) -> dict[str, Any]:
    """Reads ``field``, ``retry_after_s`` and ``reason`` from a serialized ``google.rpc.Status``."""
    found: dict[str, Any] = {}
    try:
        for detail in _STATUS.FromString(data).details:
            if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                found["reason"] = _ERROR_INFO.FromString(detail.value).reason
            elif detail.type_url.endswith("/google.rpc.BadRequest"):
                violations = _BAD_REQUEST.FromString(detail.value).field_violations
                if violations:
                    found["field"] = violations[0].field
            elif detail.type_url.endswith("/google.rpc.RetryInfo"):
                delay = _RETRY_INFO.FromString(detail.value).retry_delay
                found["retry_after_s"] = max(0.0, delay.seconds + delay.nanos * 1e-9)
    except DecodeError:
        # Status and message are right without details, so the caller still gets those.
        return {}
    return found


def _declare() -> tuple[Any, ...]:
    pool = DescriptorPool()
    for dependency in (any_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR):
        pool.AddSerializedFile(dependency.serialized_pb)
    file = text_format.Parse(_DECLARATION, FileDescriptorProto())
    pool.AddSerializedFile(file.SerializeToString())
    names = ("Status", "ErrorInfo", "BadRequest", "RetryInfo")
    messages = (pool.FindMessageTypeByName(f"google.rpc.{name}") for name in names)
    return tuple(message_factory.GetMessageClass(message) for message in messages)


_STATUS, _ERROR_INFO, _BAD_REQUEST, _RETRY_INFO = _declare()


_CLASSES: dict[str, type[errors.CallError]] = {
    "INVALID_ARGUMENT": errors.InvalidArgument,
    "NOT_FOUND": errors.NotFound,
    "FAILED_PRECONDITION": errors.FailedPrecondition,
    "RESOURCE_EXHAUSTED": errors.Overloaded,
    "DEADLINE_EXCEEDED": errors.DeadlineExceeded,
    "CANCELLED": errors.Cancelled,
    "UNAUTHENTICATED": errors.Unauthenticated,
    "PERMISSION_DENIED": errors.PermissionDenied,
    "UNAVAILABLE": errors.Unavailable,
    "INTERNAL": errors.InternalError,
    "UNKNOWN": errors.InternalError,
}

# gRPC's details of a call that this side has cancelled.
_CANCELLED_HERE = ("Locally cancelled by application!", "Channel closed!")


_TOO_LARGE = re.compile(r"(?<!\w)(\w++): Received message larger than max \((\d+) vs\. (\d+)\)")
"""Its receiver, its size and the limit."""

_CODES = {code.value[0]: code for code in grpc.StatusCode}

# Proxies, and gRPC itself, report a connection that broke under a call as INTERNAL with one of
# these in the message.
_BROKEN_CONNECTION = ("RST_STREAM", "Stream removed")

# The last of several failed attempts to connect: the address and the reason.
_LAST_ERROR = re.compile(
    r"last error: \w+: (?:ipv[46]:)?(\S+?): (?:Failed to connect to remote host: )?(.+)"
)
_NO_ADDRESS = re.compile(
    r"(?s:(?>.*?(?:errors resolving|DNS resolution failed for))) "
    r"([^\s\[]+?):? (?:.*[:\]](?=[^:\]]))?+([^:\]]++)\]*+$"
)

# How gRPC's messages begin if no connection could be made, or the host's name not be resolved.
_NO_CONNECTION = (
    "connections to all backends failing",
    "failed to connect to all addresses",
    "errors resolving",
    "DNS resolution failed",
)


class _TooLarge(errors.InvalidArgument):
    limit = 0


def error_of(
    code: grpc.StatusCode, details: str, metadata: Iterable[tuple[str, str | bytes]]
) -> errors.CallError:
    """Returns the error for a call from its status, its message and its trailing metadata."""
    attached, request_id = dict[str, Any](), ""
    for key, value in metadata:
        if key == METADATA_KEY and isinstance(value, bytes):
            attached = read_details(value)
        elif key == REQUEST_ID and isinstance(value, str):
            request_id = value
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and (sizes := _TOO_LARGE.search(details)):
        return _too_large(sizes, request_id)
    kind = _class_of(code, details)
    error = kind(
        code.name,
        _without_grpc_words(details) if kind is errors.Unreachable else details,
        request_id=request_id,
        **attached,
    )
    return _marked(error)


def error_of_call(call: Any) -> errors.CallError:
    """Returns the error for a failed call of gRPC, which is an exception with its status."""
    return error_of(call.code(), call.details() or "", call.trailing_metadata() or ())


def max_bytes_of(error: errors.CallError) -> int | None:
    """Returns the limit on the bytes of a message, if a call ended because one has more."""
    return error.limit if isinstance(error, _TooLarge) else None


def too_large(size: int, limit: int, request_id: str = "") -> errors.CallError:
    """Returns the error for a source whose request has too many bytes."""
    reason = f"its request has {size:,} bytes; the server takes at most {limit:,}: send it in parts"
    error = _TooLarge(
        "RESOURCE_EXHAUSTED", f"source: {reason}", field="source", request_id=request_id
    )
    error.limit = limit
    return error


def _too_large(sizes: re.Match[str], request_id: str) -> errors.CallError:
    size, limit = int(sizes[2]), int(sizes[3])
    if sizes[1] == "SERVER":
        return too_large(size, limit, request_id)
    reason = f"the answer has {size:,} bytes; max_message_bytes of this client is {limit:,}"
    # gRPC says RESOURCE_EXHAUSTED, as of a full queue; but no server has refused anything.
    return errors.InvalidArgument(
        "INVALID_ARGUMENT", reason, field="max_message_bytes", request_id=request_id
    )


def client_closed() -> errors.Cancelled:
    """Returns the error for a call of a closed client."""
    return errors.Cancelled("CANCELLED", "the client is closed")


def call_cancelled() -> errors.Cancelled:
    """Returns the error for a call that this side cancelled."""
    return errors.Cancelled("CANCELLED", "the call was cancelled")


def error_within(failure: generation_pb2.Failure) -> errors.CallError:
    """Returns the error for one source of a call with many."""
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    error = _class_of(code, failure.message)(
        code.name,
        failure.message,
        field=failure.field,
        retry_after_s=failure.retry_after_ms * 1e-3 if failure.retry_after_ms else None,
    )
    return _marked(error)


def _marked(error: errors.CallError) -> errors.CallError:
    if isinstance(error, errors.Cancelled):
        error.by_server = error.details not in _CANCELLED_HERE
    return error


def _without_grpc_words(details: str) -> str:
    if reason := _LAST_ERROR.search(details):
        return f"no connection to {unquote(reason[1])}: {reason[2]}"
    if reason := _NO_ADDRESS.match(details):
        return f"no address of {reason[1]}: {reason[2].strip()}"
    return details


def _class_of(code: grpc.StatusCode, details: str) -> type[errors.CallError]:
    if code is grpc.StatusCode.INTERNAL and any(sign in details for sign in _BROKEN_CONNECTION):
        return errors.Unavailable
    if code is grpc.StatusCode.UNAVAILABLE and details.startswith(_NO_CONNECTION):
        return errors.Unreachable
    return _CLASSES.get(code.name, errors.CallError)
