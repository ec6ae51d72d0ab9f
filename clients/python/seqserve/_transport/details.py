"""The details that a server attaches to a failed call: the reason, the field, the time to wait.

They come as a ``google.rpc.Status`` in the trailing metadata, with ``ErrorInfo``, ``BadRequest``
and ``RetryInfo`` inside.
Source: google/rpc/status.proto and google/rpc/error_details.proto of googleapis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import any_pb2, duration_pb2, message_factory, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

METADATA_KEY = "grpc-status-details-bin"

# The parts of both files that the client reads, in a pool of its own: gRPC does not depend on
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The details that the client understands."""

    field: str = ""
    """The wrong field of the request; empty if no field is wrong."""
    retry_after_s: float | None = None
    """Seconds after which to retry; None if the server gave no advice."""
    reason: str = ""
    """Why the call failed, for programs; empty if the server did not say."""


def read_details(data: bytes) -> Details:
    """Reads a serialized ``google.rpc.Status``; returns empty details if it is malformed."""
    field, retry_after_s, reason = "", None, ""
    try:
        for detail in _STATUS.FromString(data).details:
            if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                reason = _ERROR_INFO.FromString(detail.value).reason
            elif detail.type_url.endswith("/google.rpc.BadRequest"):
                violations = _BAD_REQUEST.FromString(detail.value).field_violations
                field = violations[0].field if violations else ""
            elif detail.type_url.endswith("/google.rpc.RetryInfo"):
                delay = _RETRY_INFO.FromString(detail.value).retry_delay
                retry_after_s = max(0.0, delay.seconds + delay.nanos * 1e-9)
    except DecodeError:
        # Status and message are right without details, so the caller still gets those.
        return Details()
    return Details(field=field, retry_after_s=retry_after_s, reason=reason)


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
