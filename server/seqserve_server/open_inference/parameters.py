"""Reads the parameters of a request as the fields of ``GenerationOptions`` of the same names.

Source: Triton's own parameters,
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_parameters.md.
"""

import json
from collections.abc import Mapping
from typing import TypeAlias

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from seqserve.declarations import DECLARATIONS
from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import MAX_NAME, InvalidRequest

Options = generation_pb2.GenerationOptions
Parameter = open_inference_pb2.InferParameter
Value: TypeAlias = bool | int | float | str

# Triton's own, about queues and sequences, which do not exist here: a deadline or ``time_limit_ms``
# bounds a call.
_TRITONS = {"priority", "timeout", "sequence_id", "sequence_start", "sequence_end"}
_TRITONS_PREFIX = "triton_"
# The requested outputs determine whether scores are returned; the other options have no tensor.
_NOT_HERE = {"return_scores", "return_token_scores", "return_top_tokens", "return_attention"}
_NOT_HERE |= {"return_alignment"}
# Tensors have no place for segments.
_NOT_HERE |= {each.name for each in DECLARATIONS.values() if each.group == "segmentation"}
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
    """Reads the options and checks their types; ``front.generate`` checks their values."""
    options = Options()
    for name in sorted(parameters):
        if name in _TRITONS or name.startswith(_TRITONS_PREFIX):
            continue
        field = _FIELDS.get(name)
        if field is None:
            # The log shows fields, and must not show a name that the client made up.
            raise InvalidRequest(
                "parameters",
                f"{name!r:.{MAX_NAME}} is not an option of this call; docs/api.md lists them",
            )
        # Every single-valued field is optional and so has presence; lists have none.
        if field.has_presence:
            value = _value(parameters[name], name, _KINDS[field.cpp_type])
            reason = f"is {value}, which is out of range"
        else:
            value = _value(parameters[name], name, _TEXT)
            reason = "must be JSON of a list as GenerationOptions has it"
        try:
            if field.has_presence:
                setattr(options, name, value)
            else:
                # Parameters have no list type.
                json_format.ParseDict({name: json.loads(str(value))}, options)
        except (ValueError, RecursionError, json_format.ParseError):
            raise InvalidRequest(f"parameters.{name}", reason) from None
    return options


def flag(parameters: Mapping[str, Parameter], name: str) -> bool:
    """Reads a parameter that is not an option; False if it is absent."""
    return name in parameters and bool(_value(parameters[name], name, ("bool_param",)))


def _value(parameter: Parameter, name: str, kinds: tuple[str, ...]) -> Value:
    kind = parameter.WhichOneof("parameter_choice")
    if kind not in kinds:
        given = kind or "nothing"
        raise InvalidRequest(
            f"parameters.{name}", f"is given as {given}; it must be {' or '.join(kinds)}"
        )
    value: Value = getattr(parameter, kind)
    return value
