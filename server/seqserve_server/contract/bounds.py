"""Checks decoding options, of a request or recommended by a model, by their declarations."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest

# Requests name what applies to their texts.
_NEVER_RECOMMENDED = ("terms", "glossary")


def check_recommended(generation: Mapping[str, Any]) -> None:
    """Checks what a model recommends for requests that do not set it, as its manifest has it."""
    options = generation_pb2.GenerationOptions()
    for name, value in generation.items():
        if name not in DECLARATIONS or name in _NEVER_RECOMMENDED:
            known = ", ".join(each for each in DECLARATIONS if each not in _NEVER_RECOMMENDED)
            reason = f"cannot be recommended; what can is {known}"
            raise InvalidRequest(f"options.{name:.80}", reason)
        try:
            json_format.ParseDict({name: value}, options)
        except json_format.ParseError as error:
            raise InvalidRequest(f"options.{name}", str(error)) from None
    check_bounds(options)


def check_bounds(options: generation_pb2.GenerationOptions) -> None:
    """Checks every option: it must be known, and its number or length within its bounds."""
    for message in (options, *options.suppress_sequences, *options.terms):
        _refuse_unknown(message)
    for field, value in options.ListFields():
        declared = DECLARATIONS[field.name]
        if declared.max_items and len(value) > declared.max_items:
            reason = f"has {len(value)} elements; at most {declared.max_items} are allowed"
            raise InvalidRequest(f"options.{field.name}", reason)
        if declared.choices and value not in declared.choices:
            reason = f"is {value!r:.80}; it must be {declared.bounds}"
            raise InvalidRequest(f"options.{field.name}", reason)
        if declared.kind in (int, float) and not declared.allows(value):
            shown = str(value) if declared.kind is int else f"{value:g}"
            if declared.allows(float(shown)):
                # Rounding hides what is wrong.
                shown = f"{value:.9g}"
            reason = f"is {shown}; it must be {declared.bounds}"
            raise InvalidRequest(f"options.{field.name}", reason)


def _refuse_unknown(message: Message) -> None:
    # An option of a newer client changes the answer, so the server must not ignore it.
    unknown_fields: Any = UnknownFieldSet(message)
    for unknown in unknown_fields:
        raise InvalidRequest(
            "options", f"field {unknown.field_number} is not known to this server; upgrade it"
        )
