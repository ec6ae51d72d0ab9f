import json
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from tests.unit.server.front.generate.asking import refusal
from tests.unit.server.open_inference.tensor import set_parameter

from seqserve.open_inference import open_inference_pb2
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.open_inference.parameters import flag, options_of

Options = generation_pb2.GenerationOptions
Parameter = open_inference_pb2.InferParameter

REFUSED = {f"return_{name}" for name in ("scores", "token_scores", "top_tokens", "attention")}
REFUSED |= {"return_alignment", "segmentation", "segmentation_language"}
VALUES: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_BOOL: True,
    FieldDescriptor.CPPTYPE_INT32: 7,
    FieldDescriptor.CPPTYPE_UINT64: 7,
    FieldDescriptor.CPPTYPE_FLOAT: 0.25,
    FieldDescriptor.CPPTYPE_STRING: "ü",
}

LISTS = (
    *("suppress_tokens", "end_tokens", "stop_sequences", "target_prefix_tokens"),
    *("vocabulary_allow", "keep"),
)
SET: dict[str, Any] = {
    field.name: VALUES.get(field.cpp_type)
    for field in Options.DESCRIPTOR.fields
    if field.name not in REFUSED
} | {
    "suppress_sequences": [{"tokens": ["a", "b"]}],
    "terms": [{"source": "tea", "target": "Tee"}],
    "shortlist": False,
    **{name: [". ", "ü"] for name in LISTS},
}


def made(**values: Any) -> Any:
    parameters = {}
    for name, value in values.items():
        parameters[name] = Parameter()
        set_parameter(parameters[name], json.dumps(value) if isinstance(value, list) else value)
    return options_of(parameters)


def refused(name: str, parameter: Any, field: str = "") -> str:
    error = refusal(options_of, {name: parameter})
    assert error.field == (field or f"parameters.{name}")
    return error.reason


def test_every_option_is_either_taken_or_refused() -> None:
    assert set(SET) | REFUSED == {field.name for field in Options.DESCRIPTOR.fields}


@pytest.mark.parametrize("names", [[], *[[name] for name in SET], list(SET)], ids=str)
def test_parameters_set_the_options_of_their_names(names: list[str]) -> None:
    values = {name: SET[name] for name in names}
    assert made(**values) == Options(**values)


@pytest.mark.parametrize("name", [*sorted(REFUSED), "beamSize", "source", "", "x" * 9999])
def test_unknown_parameter_is_named_in_the_message_and_not_in_the_field(name: str) -> None:
    reason = refused(name, Parameter(bool_param=True), "parameters")
    assert reason.startswith(f"'{name}"[:50]) and "is not an option" in reason


@pytest.mark.parametrize(
    "name",
    ["priority", "timeout", "sequence_id", "sequence_start", "sequence_end", "triton_anything"],
)
def test_parameters_of_triton_are_ignored(name: str) -> None:
    assert options_of({name: Parameter(string_param="a")}) == Options()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("beam_size", {"double_param": 4.0}),
        ("beam_size", {"string_param": "4"}),
        ("beam_size", {"bool_param": True}),
        ("beam_size", {}),
        ("seed", {"double_param": 1.0}),
        ("temperature", {"string_param": "0.5"}),
        ("temperature", {"bool_param": True}),
        ("disable_unk", {"int64_param": 1}),
        ("target_prefix", {"int64_param": 1}),
        ("stop_sequences", {"int64_param": 1}),
    ],
)
def test_parameter_of_the_wrong_type_is_refused(name: str, given: dict[str, Any]) -> None:
    reason = refused(name, Parameter(**given))
    assert (next(iter(given), None) or "nothing") in reason
    assert "it must be" in reason


def test_signed_and_unsigned_integers_are_accepted() -> None:
    assert options_of({"beam_size": Parameter(uint64_param=4)}) == Options(beam_size=4)
    assert options_of({"temperature": Parameter(int64_param=2)}) == Options(temperature=2)
    assert options_of({"seed": Parameter(uint64_param=2**64 - 1)}) == Options(seed=2**64 - 1)


@pytest.mark.parametrize(
    ("name", "value"), [("beam_size", 2**31), ("beam_size", -(2**31) - 1), ("seed", -1)]
)
def test_integer_out_of_range_is_refused(name: str, value: int) -> None:
    assert f"{value}" in refused(name, Parameter(int64_param=value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("stop_sequences", text) for text in ("", ".", '"."', "[1]", "[null]", '["\\ud800"]')),
        pytest.param("stop_sequences", "[" * 100_000, id="too deep"),
        ("terms", '["tea"]'),
        ("terms", '[{"from": "tea"}]'),
        ("suppress_sequences", '[["a", "b"]]'),
    ],
)
def test_malformed_json_list_is_refused(name: str, text: str) -> None:
    assert "JSON" in refused(name, Parameter(string_param=text))


def test_flag_is_a_bool_and_false_if_absent() -> None:
    assert not flag({}, "stream")
    assert not flag({"stream": Parameter(bool_param=False)}, "stream")
    assert flag({"stream": Parameter(bool_param=True)}, "stream")
    with pytest.raises(InvalidRequest, match=r"parameters\.stream: is given as string_param"):
        flag({"stream": Parameter(string_param="yes")}, "stream")
