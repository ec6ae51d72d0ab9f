"""Options of a request as parameters of the Open Inference Protocol, by their names.

Source: Triton's parameters of its own,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_parameters.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.rpc.open_inference.pb import open_inference_pb2
from seqserve_server.front.rpc.open_inference.tensors import MOST_NAME

Options = generation_pb2.GenerationOptions
Parameter = open_inference_pb2.InferParameter
Value: TypeAlias = bool | int | float | str

# Triton's own, about queues and sequences that are not here. What bounds a call is its deadline, or
# ``time_limit_ms``.
_TRITONS = {"priority", "timeout", "sequence_id", "sequence_start", "sequence_end"}
_TRITONS_PREFIX = "triton_"
# What scores are wanted for is said by the outputs, and of the rest no tensor could be made.
_NOT_HERE = {"return_scores", "return_token_scores", "return_top_tokens", "return_attention"}
_FIELDS = {field.name: field for field in Options.DESCRIPTOR.fields if field.name not in _NOT_HERE}
_TEXT = ("string_param",)
_WHOLE = ("int64_param", "uint64_param")
_KINDS = {
    FieldDescriptor.CPPTYPE_BOOL: ("bool_param",),
    FieldDescriptor.CPPTYPE_INT32: _WHOLE,
    FieldDescriptor.CPPTYPE_UINT64: _WHOLE,
    FieldDescriptor.CPPTYPE_FLOAT: ("double_param", *_WHOLE),
    FieldDescriptor.CPPTYPE_STRING: _TEXT,
}


def options_of(parameters: Mapping[str, Parameter]) -> Options:
    """Reads options; ``front.rpc.options`` checks their values.

    Raises:
        InvalidRequest: One is unknown, or not of the type of its field.
    """
    options = Options()
    for name in sorted(parameters):
        if name in _TRITONS or name.startswith(_TRITONS_PREFIX):
            continue
        field = _FIELDS.get(name)
        if field is None:
            # Fields are logged, and this name is the caller's own.
            raise InvalidRequest(
                "parameters",
                f"hold {name!r:.{MOST_NAME}}, which is no option of this call;"
                " docs/protocols.md lists them",
            )
        # Every single value of options may be left out; what never is, is a list.
        if not field.has_presence:
            _set_list(options, name, str(_value(parameters[name], name, _TEXT)))
        else:
            _set(options, name, _value(parameters[name], name, _KINDS[field.cpp_type]))
    return options


def flag(parameters: Mapping[str, Parameter], name: str) -> bool:
    """Reads a parameter that is no option; False where it is not there.

    Raises:
        InvalidRequest: It is not of type bool.
    """
    return name in parameters and bool(_value(parameters[name], name, ("bool_param",)))


def _value(parameter: Parameter, name: str, kinds: tuple[str, ...]) -> Value:
    kind = parameter.WhichOneof("parameter_choice")
    if kind not in kinds:
        raise _wrong(name, f"is given as {kind or 'nothing'}; it must be {' or '.join(kinds)}")
    value: Value = getattr(parameter, kind)
    return value


def _set(options: Options, name: str, value: Value) -> None:
    try:
        setattr(options, name, value)
    except ValueError:
        raise _wrong(name, f"is {value}, which is out of its range") from None


def _set_list(options: Options, name: str, text: str) -> None:
    # Parameters have no lists.
    try:
        json_format.ParseDict({name: json.loads(text)}, options)
    except (ValueError, RecursionError, json_format.ParseError):
        raise _wrong(name, "is no JSON of a list as GenerationOptions has it there") from None


def _wrong(name: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"parameters.{name}", reason)
