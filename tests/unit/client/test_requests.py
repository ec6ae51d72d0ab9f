import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqserve import GenerateOptions, Priority, requests
from seqserve.errors import InvalidArgument
from seqserve.results import StopReason
from seqserve.v1 import generation_pb2, model_pb2

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
WIDE = {"seed": st.integers(0, 2**64 - 1), "version": st.integers(0, 2**32 - 1)}
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    bool: st.booleans(),
    int: st.integers(-(2**31), 2**31 - 1),
    float: st.floats(width=32, allow_nan=False),
    Sequence[str]: st.lists(TEXTS, max_size=4),
    Sequence[Sequence[str]]: st.lists(st.lists(TEXTS, max_size=3), max_size=3),
    Mapping[str, str]: st.dictionaries(TEXTS, TEXTS, max_size=3),
    Priority: st.sampled_from(Priority),
}
OF_THE_REQUEST = {"model", "version", "priority"}


def kind_of(name: str) -> Any:
    """What a value of an option is, None left aside."""
    # Some texts may be given as True or False too.
    (kind, *_, none) = typing.get_args(typing.get_type_hints(GenerateOptions)[name])
    assert none is type(None)
    # The server checks which text it is.
    return str if typing.get_origin(kind) is typing.Literal else kind


DECODING = sorted(set(GenerateOptions.__annotations__) - OF_THE_REQUEST)
ALL = st.fixed_dictionaries(
    {},
    optional={
        name: st.none() | WIDE.get(name, VALUES[kind_of(name)])
        for name in GenerateOptions.__annotations__
    },
)


WIRE = {
    None: generation_pb2.PRIORITY_UNSPECIFIED,
    Priority.NORMAL: generation_pb2.PRIORITY_NORMAL,
    Priority.LOW: generation_pb2.PRIORITY_LOW,
}


def plain(value: Any) -> Any:
    """What a field holds, in lists and pairs in place of protobuf's containers."""
    if isinstance(value, generation_pb2.Term):
        return value.source, value.target
    if isinstance(value, generation_pb2.TokenSequence):
        return list(value.tokens)
    if isinstance(value, str | float | int):
        return value
    return [plain(element) for element in value]


def test_true_and_false_stand_for_their_words() -> None:
    for value, word in ((True, "true"), (False, "false"), ("never", "never")):
        request = requests.generate_request("a", early_stopping=value)
        assert request.options.early_stopping == word
    with pytest.raises(InvalidArgument, match="segmentation: True is not a text"):
        requests.generate_request("a", segmentation=True)  # type: ignore[typeddict-item]
    with pytest.raises(InvalidArgument, match="model: True is not a text"):
        requests.generate_request("a", model=True)  # type: ignore[typeddict-item]


def test_the_options_are_those_of_the_wire() -> None:
    assert sorted(generation_pb2.GenerationOptions.DESCRIPTOR.fields_by_name) == DECODING


@given(TEXTS, ALL)
@example("Hallo", {"min_decoding_length": 0, "suppress_tokens": [], "disable_unk": False})
def test_only_options_that_are_set_are_sent(source: str, options: GenerateOptions) -> None:
    sent = generation_pb2.GenerateRequest.FromString(
        requests.generate_request(source, **options).SerializeToString()
    )
    assert sent.source == source
    assert sent.priority == WIRE[options.get("priority")]
    assert (sent.model, sent.version) == (options.get("model") or "", options.get("version") or 0)
    wanted = {
        name: list(value.items()) if isinstance(value, dict) else value
        for name, value in options.items()
        if value not in (None, [], {}) and name not in OF_THE_REQUEST
    }
    present = {field.name: plain(value) for field, value in sent.options.ListFields()}
    assert present == wanted
    assert sent.HasField("options") == bool(wanted)


def test_any_sequence_is_a_list() -> None:
    request = requests.generate_request(
        "a", suppress_tokens=("b", "c"), suppress_sequences=(["d", "e"], ("f",))
    )
    assert list(request.options.suppress_tokens) == ["b", "c"]
    assert plain(request.options.suppress_sequences) == [["d", "e"], ["f"]]


WRONG: dict[Any, tuple[str, list[Any]]] = {
    str: ("a text", [7, ["a"], True]),
    bool: ("true or false", [1, "true", 0.0, [True]]),
    int: ("a whole number that fits 32 bits", [1.5, "1", True, [1], 1 << 31]),
    float: ("a number", ["1", True, [1.0]]),
    Sequence[str]: ("a list of texts", ["abc", 5, [1], ["a", None], {"a"}, [["a"]]]),
    Sequence[Sequence[str]]: (
        "a list of lists of texts",
        ["abc", 5, ["abc"], [[1]], [["a"], None]],
    ),
    Mapping[str, str]: (
        "a mapping from texts to texts",
        ["a=b", 5, [("a", "b")], {"a": 1}, {1: "a"}, {"a": None}, {None: "a"}],
    ),
}


@pytest.mark.parametrize("name", DECODING)
def test_what_no_option_can_carry_names_it(name: str) -> None:
    kind, values = WRONG[kind_of(name)]
    for value in values:
        if name == "early_stopping" and value is True:
            continue
        if name == "seed":
            kind, value = kind.replace("32", "64"), -1 if value == 1 << 31 else value
        reason = re.escape(f"INVALID_ARGUMENT: {name}: {value!r} is not {kind}")
        with pytest.raises(InvalidArgument, match=f"^{reason}$") as refused:
            requests.generate_request("text", **{name: value})
        assert refused.value.field == name


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("target_prefix", "\ud83dx", ""),
        ("stop_sequences", ["a", "\ud83d"], "[1]"),
        ("suppress_sequences", [["a"], ["\ud83d"]], "[1]"),
        ("terms", {"a": "\ud83d"}, ""),
        ("terms", {"\ud83d": "a"}, ""),
    ],
)
def test_half_a_character_names_its_option(name: str, value: Any, where: str) -> None:
    message = re.escape(name + where) + ": holds half a character .* position 0"
    with pytest.raises(InvalidArgument, match=message):
        requests.generate_request("text", **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source_language", b"en"),
        ("keep", [b"a"]),
        ("terms", {b"a": "b"}),
        ("suppress_sequences", [[b"a"]]),
    ],
)
def test_bytes_are_no_texts(name: str, value: Any) -> None:
    message = re.escape(f"{name}: {value!r} is not a")
    with pytest.raises(InvalidArgument, match=message):
        requests.generate_request("text", **{name: value})
    template = requests.generate_request("")
    with pytest.raises(InvalidArgument, match="source: b'a' is not a text"):
        requests.generate_request(b"a")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"sources: \['a', b'a'\] is not a list of texts"):
        requests.with_sources(template, ["a", b"a"])  # type: ignore[list-item]


def test_sources_of_a_batch_have_its_priority_and_half_a_character_names_its_source() -> None:
    low = requests.generate_request("", priority=Priority.LOW)
    assert requests.with_sources(low, ["a", "b"]).priority == generation_pb2.PRIORITY_LOW
    with pytest.raises(InvalidArgument, match=r"sources\[2\]: holds half a character"):
        requests.with_sources(low, ["a", "b", "c\ud83d", "d"])


@pytest.mark.parametrize("source", [None, float("nan"), 7, ("a",), ("a", {}, "b")])
def test_source_of_a_bulk_call_is_a_text_or_a_pair(source: Any) -> None:
    template = requests.generate_request("")
    with pytest.raises(InvalidArgument, match="is neither a text nor a pair") as refused:
        requests.generate_bulk_request(template, 1, source)
    assert refused.value.field == "source"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("source", None, "None is not a text"),
        ("source", 7, "7 is not a text"),
        ("source", ["a"], "is not a text"),
        ("source", "ab\ud83dc", "half a character .* at position 2"),
        ("model", 7, "7 is not a text"),
        ("version", -1, "-1 is not a whole number that fits 32 bits"),
        ("version", 1 << 32, "whole number"),
        ("version", "1", "whole number"),
        ("priority", "low", "'low' is not a member of seqserve.Priority"),
        ("priority", StopReason.EOS, "is not a member of seqserve.Priority"),
        ("version", Priority.LOW, "whole number"),
    ],
)
def test_what_no_message_can_carry_names_its_field(field: str, value: Any, reason: str) -> None:
    arguments = {"source": "text", field: value}
    with pytest.raises(InvalidArgument, match=f"^INVALID_ARGUMENT: {field}: .*{reason}") as refused:
        requests.generate_request(**arguments)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("beams", "; did you mean beam_size?"),
        ("timeout", "; did you mean timeout_s?"),
        ("options", ""),
        ("timeout_s", ""),
    ],
)
def test_an_unknown_option_is_a_mistake_in_the_program(name: str, advice: str) -> None:
    options: dict[str, Any] = {name: 4}
    with pytest.raises(TypeError, match=f"unknown option '{name}'{re.escape(advice)}"):
        requests.generate_request("text", **options)
    with pytest.raises(TypeError, match=f"unknown option '{name}'"):
        requests.detokenize_request([1], **options)


def test_score_request() -> None:
    given: dict[str, Any] = {"model": "m", "version": 2, "target_language": "de"}
    expected = generation_pb2.ScoreRequest(source="a", target="b", **given)
    assert requests.score_request("a", "b", **given) == expected
    assert requests.score_request("a", "", model=None) == generation_pb2.ScoreRequest(source="a")
    with pytest.raises(InvalidArgument, match="target: None is not a text"):
        requests.score_request("a", None)


def test_attention_request() -> None:
    assert requests.attention_request(
        "a", target="b", model="m", version=2
    ) == generation_pb2.AttentionRequest(source="a", target="b", model="m", version=2)
    assert not requests.attention_request("a", target=None).HasField("target")
    assert requests.attention_request("a", target="").HasField("target")
    with pytest.raises(InvalidArgument, match="source: None is not a text"):
        requests.attention_request(None, target="b")


def test_requests_that_change_what_is_loaded() -> None:
    load = model_pb2.LoadModelRequest(model="m", version=2)
    assert requests.load_model_request(model="m", version=2) == load
    assert requests.load_model_request(model=None, version=None) == model_pb2.LoadModelRequest()
    unload = model_pb2.UnloadModelRequest(model="m", version=2)
    assert requests.unload_model_request(2, model="m") == unload
    with pytest.raises(InvalidArgument, match="version: None is not a whole number"):
        requests.unload_model_request(None, model="m")
    traffic = model_pb2.SetTrafficRequest(model="m", weights={1: 90, 2: 10})
    assert requests.set_traffic_request({1: 90, 2: 10}, model="m") == traffic
    assert requests.set_traffic_request({}, model=None) == model_pb2.SetTrafficRequest()


@pytest.mark.parametrize("weights", [None, [1], {"1": 2}, {1: -1}, {1: 0.5}, {1: None}])
def test_weights_are_whole_numbers(weights: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"weights: .* is not a mapping from versions"):
        requests.set_traffic_request(weights, model="m")


def test_one_of_many_sources_may_have_options_of_its_own() -> None:
    template = requests.generate_request("", model="a", beam_size=5, end_tokens=["x"])
    alone = requests.generate_bulk_request(template, 7, ("b", {"end_tokens": ["y"], "top_k": 2}))
    assert (alone.id, alone.request.source, alone.request.model) == (7, "b", "a")
    options = alone.request.options
    assert (options.beam_size, list(options.end_tokens), options.top_k) == (5, ["y"], 2)
    assert list(template.options.end_tokens) == ["x"]
