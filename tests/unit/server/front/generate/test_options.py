import math
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.front.echo import MAX_TARGET, echo_model, manifest
from tests.unit.server.front.generate.asking import DECODING as DEFAULTS
from tests.unit.server.front.generate.asking import FEATURES, TOKENIZER, ids, refusal

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.front.generate.options import compile_options
from seqserve_server.text.glossary import Glossaries, Glossary, Label

MANIFEST = manifest()
MAX_ROWS = 8
UNK, EOS = MANIFEST.tokens.unk, MANIFEST.tokens.eos

Options = generation_pb2.GenerationOptions
Tokens = generation_pb2.TokenSequence
Term = generation_pb2.Term

TEA = Term(source="tea", target="Tee")
GLOSSARIES = Glossaries()
GLOSSARIES.listed = [Glossary(Label("a", "en", "de"), [TEA])]


def convert_message(options: Any, max_rows: int = MAX_ROWS) -> DecodingOptions:
    features = FEATURES._replace(glossaries=GLOSSARIES)
    return compile_options(options, echo_model(MANIFEST, TOKENIZER, max_rows), features).decoding


def convert(**options: Any) -> DecodingOptions:
    return convert_message(Options(**options))


def refused(**options: Any) -> tuple[str, str]:
    """Returns the field and the reason of the error."""
    error = refusal(convert, **options)
    return error.field.removeprefix("options."), error.reason


BIASED = {"beam_size": 2, "target_prefix": "a", "prefix_bias_beta": 0.1}
FORKS = {"return_alternatives": True}
CDC = Tokens(tokens=["c", "d", "c"])
ALL = {"vocabulary_allow": ["a", "b"]}
A, B = Tokens(tokens=["a"]), Tokens(tokens=["b"])


def test_no_options_are_the_defaults_of_the_model() -> None:
    assert convert() == DEFAULTS
    assert convert(return_scores=True) == DEFAULTS
    assert convert().is_plain


def test_an_option_set_to_its_default_changes_nothing() -> None:
    sent = {field.name for field in Options.DESCRIPTOR.fields}
    # Those of sampling, of texts and of lists have no value that stands for none.
    defaults = {
        name: value
        for name, value in vars(DEFAULTS).items()
        if name in sent and isinstance(value, bool | int | float) and name != "early_stopping"
    }
    assert len(defaults) > 15
    others = {"disable_unk": False, "target_prefix": "", "replace_unknowns": False}
    assert convert(**defaults, **others) == DEFAULTS


PREFIXED = {"target_prefix": "a", "beam_size": 4}
# Field, values that are just allowed, values that just are not, and options that it needs.
BOUNDS: list[tuple[str, Sequence[float], Sequence[float], dict[str, Any]]] = [
    ("max_decoding_length", [1, MAX_TARGET], [-(2**31), -1, 0, MAX_TARGET + 1], {}),
    ("min_decoding_length", [0, MAX_TARGET], [-1, MAX_TARGET + 1], {}),
    ("min_decoding_length", [0, 7], [8], {"max_decoding_length": 7}),
    ("beam_size", [1, MAX_ROWS], [-1, 0, MAX_ROWS + 1, 2**31 - 1], {}),
    ("patience", [0.001, 16.0], [-1.0, 0.0, 16.1, math.inf, math.nan], {"beam_size": 4}),
    ("length_penalty", [-4.0, 16.0], [-4.1, 16.1, math.inf, math.nan], {}),
    ("coverage_penalty", [0.0, 16.0], [-0.1, 16.1, math.inf, math.nan], {"beam_size": 4}),
    ("num_hypotheses", [1, 4], [-1, 0, 5], {"beam_size": 4}),
    ("num_hypotheses", [1, MAX_ROWS], [0, MAX_ROWS + 1], {"temperature": 1.0}),
    ("num_hypotheses", [1, MAX_ROWS], [0, MAX_ROWS + 1], FORKS),
    ("num_hypotheses", [1, MAX_ROWS // 3], [MAX_ROWS // 3 + 1], FORKS | {"beam_size": 3}),
    ("min_alternative_expansion_prob", [0.0, 1.0], [-0.1, 1.001, math.nan], FORKS),
    ("temperature", [0.001, 1000.0], [-1.0, 0.0, 1000.1, math.inf, math.nan], {}),
    ("top_k", [0, 1, 2**31 - 1], [-1], {}),
    ("top_p", [0.001, 1.0], [-0.1, 0.0, 1.001, math.nan], {}),
    ("min_p", [0.0, 1.0], [-0.1, 1.001, math.nan], {}),
    ("seed", [0, 2**64 - 1], [], {}),
    ("repetition_penalty", [1 / 64, 64.0], [-1.0, 0.0, 0.015, 64.1, math.inf, math.nan], {}),
    ("no_repeat_ngram_size", [0, 1, 2**31 - 1], [-1], {}),
    ("prefix_bias_beta", [0.0, 0.999], [-0.1, 1.0, math.nan], PREFIXED),
    ("return_top_tokens", [0, 64], [-1, 65], {}),
]


@pytest.mark.parametrize(("field", "good", "bad", "needed"), BOUNDS)
def test_bounds(
    field: str, good: Sequence[float], bad: Sequence[float], needed: dict[str, Any]
) -> None:
    for value in good:
        options = convert(**{field: value}, **needed)
        place = options.sampling if field in Sampling._fields else options
        assert getattr(place, field) == pytest.approx(value)
    for value in bad:
        named, reason = refused(**{field: value}, **needed)
        assert named == field
        assert (str(value) if isinstance(value, int) else f"{value:g}") in reason


def test_every_number_has_its_bounds_tested() -> None:
    numbers = {
        field.name
        for field in Options.DESCRIPTOR.fields
        if field.cpp_type not in (field.CPPTYPE_BOOL, field.CPPTYPE_STRING, field.CPPTYPE_MESSAGE)
    }
    # The engine counts it in seconds; it has a test of its own.
    assert numbers - {"time_limit_ms"} == {field for field, *_ in BOUNDS}


def test_time_limit() -> None:
    assert convert().time_limit_s == math.inf
    for limit_ms in (1, 2500, 2**31 - 1):
        assert convert(time_limit_ms=limit_ms).time_limit_s == limit_ms / 1e3
    for limit_ms in (0, -1):
        with pytest.raises(InvalidRequest, match=f"options.time_limit_ms: is {limit_ms}; .* 1"):
            convert(time_limit_ms=limit_ms)
    assert convert(time_limit_ms=5).is_plain, "it costs a step nothing"


def test_rows_are_limited_by_the_slots_of_the_server() -> None:
    assert convert_message(Options(beam_size=2), max_rows=2).beam_size == 2
    for options in (Options(beam_size=3), Options(top_k=5, num_hypotheses=3)):
        with pytest.raises(InvalidRequest, match="at most 2"):
            convert_message(options, max_rows=2)


def test_alternatives_are_limited_by_the_top_k_of_a_step() -> None:
    convert_message(Options(return_alternatives=True, num_hypotheses=64), max_rows=100)
    with pytest.raises(InvalidRequest, match="at most 64 of them fit"):
        convert_message(Options(return_alternatives=True, num_hypotheses=65), max_rows=100)


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p", "min_p", "seed"])
def test_each_sampling_option_switches_sampling_on(field: str) -> None:
    sampling = convert(**{field: 1}).sampling
    assert sampling is not None
    plain = Sampling(1.0, 0, 1.0, 0.0, seed=0)
    # By default all tokens are sampled from, with a random seed.
    assert sampling._replace(seed=0) == plain._replace(**{field: 1})._replace(seed=0)


def test_the_seed_is_random_by_default() -> None:
    seeds = {sampling.seed for _ in range(8) if (sampling := convert(top_k=5).sampling)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert convert(seed=0).sampling == Sampling(1.0, 0, 1.0, 0.0, seed=0)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            {"beam_size": 5, "patience": 2.0, "length_penalty": 0.5, "num_hypotheses": 3},
            {"beam_size": 5, "patience": 2.0, "num_hypotheses": 3, "rows": 5, "is_plain": False},
        ),
        (
            FORKS | {"beam_size": 2, "num_hypotheses": 4},
            FORKS | {"num_hypotheses": 4, "rows": 8},
        ),
        ({"return_alternatives": True, "min_alternative_expansion_prob": 0.5}, {"rows": 1}),
        (
            {"beam_size": 2, "target_prefix_tokens": ["a", "b"], "prefix_bias_beta": 0.25},
            {"prefix": ids("ab"), "prefix_bias_beta": 0.25},
        ),
        # A token is a byte.
        ({"target_prefix": "Ä b"}, {"prefix": ids("Ä b")}),
        ({"end_tokens": ["x", "</s>"]}, {"end_ids": (*ids("x"), EOS)}),
        (
            {"suppress_tokens": ["a", "c"], "suppress_sequences": [CDC, B], "disable_unk": True},
            {"suppressed": (ids("a"), ids("c"), ids("cdc"), ids("b"), (UNK,))},
        ),
        ({"return_scores": False, "return_token_scores": True}, {"return_scores": False}),
        ({"return_token_scores": True}, {"return_token_scores": True}),
        ({"return_attention": True}, {"return_attention": True}),
        ({"return_alignment": True}, {"return_attention": True}),
        # The replacement is the token that it attends to.
        ({"replace_unknowns": True}, {"return_attention": True}),
    ],
    ids=lambda options: " ".join(options),
)
def test_what_the_engine_gets(sent: dict[str, Any], expected: dict[str, Any]) -> None:
    options = convert(**sent)
    assert {name: getattr(options, name) for name in expected} == expected


def test_the_vocabulary_is_sorted_and_includes_end_tokens() -> None:
    eos = MANIFEST.tokens.eos
    assert convert().shortlist
    assert not convert(shortlist=False).shortlist
    assert convert(vocabulary_allow=["b", "a", "b"]).vocabulary == (eos, *ids("ab"))
    assert convert(vocabulary_allow=["a", "</s>"]).vocabulary == (eos, *ids("a"))
    assert convert(vocabulary_allow=["b"], end_tokens=["a"]).vocabulary == ids("ab")
    assert convert(end_tokens=["a"]).vocabulary == ()


FIELDS_OF_TOKENS: list[tuple[str, Any]] = [
    ("suppress_tokens", ["a", "nothing"]),
    ("suppress_sequences", [Tokens(tokens=["a", "nothing"])]),
    ("end_tokens", ["nothing"]),
    ("end_tokens", ["nothing" * 9999]),
    ("target_prefix_tokens", ["nothing"]),
    ("vocabulary_allow", ["a", "nothing"]),
]


@pytest.mark.parametrize(("field", "value"), FIELDS_OF_TOKENS)
def test_an_unknown_token_is_refused(field: str, value: Any) -> None:
    named, reason = refused(**{field: value})
    assert named == field
    assert "'nothing" in reason


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("beam_size", {"beam_size": 2, "temperature": 1.0}),
        ("beam_size", {"beam_size": 2, "top_k": 0}),
        ("beam_size", {"beam_size": 2, "seed": 1}),
        ("num_hypotheses", {"num_hypotheses": 2}),
        ("num_hypotheses", {"num_hypotheses": 3, "beam_size": 2}),
        ("target_prefix_tokens", {"target_prefix": "a", "target_prefix_tokens": ["a"]}),
        ("target_prefix_tokens", {"target_prefix": "", "target_prefix_tokens": ["a"]}),
        ("target_prefix", {"target_prefix": "abc", "max_decoding_length": 3}),
        ("target_prefix_tokens", {"target_prefix_tokens": ["a"], "max_decoding_length": 1}),
        ("target_prefix", {"target_prefix": "ab", "end_tokens": ["b"]}),
        ("target_prefix_tokens", {"target_prefix_tokens": ["</s>"]}),
        ("suppress_tokens", {"target_prefix": "ab", "suppress_tokens": ["b"]}),
        ("suppress_tokens", {"suppress_tokens": ["a", "b"], "end_tokens": ["b"]}),
        ("suppress_tokens", {"suppress_sequences": [B], "end_tokens": ["b"]}),
        ("suppress_sequences", {"suppress_sequences": [Tokens()]}),
        ("coverage_penalty", {"coverage_penalty": 0.1}),
        ("coverage_penalty", FORKS | {"coverage_penalty": 0.1, "beam_size": 2}),
        ("early_stopping", {"early_stopping": "false"}),
        ("early_stopping", {"early_stopping": "true", "temperature": 0.5}),
        ("early_stopping", {"early_stopping": "", "beam_size": 2}),
        ("early_stopping", {"early_stopping": "always", "beam_size": 2}),
        ("early_stopping", {"early_stopping": "never", "beam_size": 2, "terms": [TEA]}),
        ("early_stopping", {"early_stopping": "true", "beam_size": 2, "glossary": "a"}),
        ("early_stopping", {"early_stopping": "false", "beam_size": 2, "coverage_penalty": 0.1}),
        ("prefix_bias_beta", {"prefix_bias_beta": 0.1, "target_prefix": "a"}),
        ("prefix_bias_beta", {"prefix_bias_beta": 0.1, "beam_size": 2}),
        ("prefix_bias_beta", {"prefix_bias_beta": 0.1, "beam_size": 2, "target_prefix": ""}),
        ("prefix_bias_beta", {**BIASED, "return_alternatives": True}),
        ("prefix_bias_beta", {**BIASED, "terms": [TEA]}),
        ("prefix_bias_beta", {**BIASED, "vocabulary_allow": ["a"]}),
        ("return_alternatives", FORKS | {"beam_size": 2, "terms": [TEA]}),
        ("return_alternatives", FORKS | {"temperature": 1.0}),
        ("return_alternatives", FORKS | {"top_k": 0}),
        ("return_alternatives", FORKS | {"seed": 0}),
        ("min_alternative_expansion_prob", {"min_alternative_expansion_prob": 0.1}),
        ("terms", {"terms": [TEA], "top_k": 5}),
        ("glossary", {"glossary": "a", "seed": 0}),
        ("glossary", {"glossary": "unknown", "beam_size": 0}),
        ("return_alternatives", FORKS | {"glossary": "a"}),
        ("prefix_bias_beta", {**BIASED, "glossary": "a"}),
        ("terms", {"beam_size": 2, "terms": [TEA] * 2}),
        ("terms", {"beam_size": 2, "terms": [Term(source=f"s{n}", target="t") for n in range(17)]}),
        ("terms", {"beam_size": 2, "terms": [TEA], "suppress_tokens": ["e"]}),
        ("terms", {"beam_size": 2, "terms": [TEA], "end_tokens": ["T"]}),
        ("terms", {"beam_size": 2, "terms": [TEA], "vocabulary_allow": ["e"]}),
        ("vocabulary_allow", {"vocabulary_allow": ["a"] * 4097}),
        ("vocabulary_allow", {"vocabulary_allow": ["a", "b"], "suppress_tokens": ["b", "a"]}),
        ("vocabulary_allow", {"vocabulary_allow": ["a"], "suppress_sequences": [A]}),
        ("vocabulary_allow", {"vocabulary_allow": ["<unk>", "</s>"], "disable_unk": True}),
        ("vocabulary_allow", {"vocabulary_allow": ["</s>"], "min_decoding_length": 1}),
        ("vocabulary_allow", ALL | {"end_tokens": ["a", "b"], "min_decoding_length": 1}),
        ("vocabulary_allow", ALL | {"end_tokens": ["a"], "suppress_tokens": ["b"]}),
        ("stop_sequences", {"stop_sequences": ["a", ""]}),
        ("stop_sequences", {"stop_sequences": ["a" * 257]}),
        ("stop_sequences", {"stop_sequences": ["b"], "target_prefix": "ab"}),
        ("end_tokens", {"end_tokens": ["a"] * 2000, "min_decoding_length": 1}),
        ("stop_sequences", {"stop_sequences": ["a"] * 17}),
        ("suppress_tokens", {"suppress_tokens": ["a"] * 513}),
        ("suppress_sequences", {"suppress_sequences": [Tokens(tokens=["a", "b"])] * 513}),
        ("suppress_sequences", {"suppress_tokens": ["a"] * 400, "suppress_sequences": [B] * 113}),
    ],
)
def test_contradictions_and_excess_are_refused(field: str, options: dict[str, Any]) -> None:
    assert refused(**options)[0] == field


def test_lists_of_the_maximum_size_are_accepted() -> None:
    stops = ["ä" * 256, *("a" * n for n in range(1, 16))]
    assert convert(stop_sequences=stops).stops == tuple(stops)
    many = convert(suppress_tokens=["a"] * 400, suppress_sequences=[CDC] * 112)
    assert len(many.suppressed) == 512
    assert convert(target_prefix="ab", max_decoding_length=3).prefix == ids("ab")
    assert len(convert(vocabulary_allow=["a"] * 4096).vocabulary) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"target_prefix": "ab", "suppress_sequences": [Tokens(tokens=["b", "c"])]},
        {"suppress_tokens": ["</s>"]},
        {"suppress_tokens": ["a"], "end_tokens": ["b"]},
        {"num_hypotheses": 3, "temperature": 1.0},
        {"beam_size": 1, "temperature": 1.0},
        {"min_decoding_length": 9, "target_prefix": "ab"},
        {**BIASED, "return_alternatives": False, "coverage_penalty": 0.5},
        FORKS | {"coverage_penalty": 0.0, "prefix_bias_beta": 0.0},
        {"segmentation": "none", "target_prefix": "a"},
        {"segmentation": "lines", "beam_size": 2, "num_hypotheses": 2, "stop_sequences": ["a"]},
        {"vocabulary_allow": ["a", "b"], "suppress_tokens": ["a", "</s>"]},
        {"vocabulary_allow": ["a"], "suppress_sequences": [Tokens(tokens=["a", "a"])]},
        {"vocabulary_allow": ["a", "b"], "end_tokens": ["a", "b"]},
        {"vocabulary_allow": ["</s>"], "min_decoding_length": 2, "target_prefix": "ab"},
        {"vocabulary_allow": ["a"], "temperature": 1.0},
        {"vocabulary_allow": ["a"], "target_prefix": "b"},
        {"beam_size": 2, "terms": [TEA], "suppress_tokens": ["a"], "end_tokens": ["x"]},
        {"beam_size": 2, "terms": [TEA], "suppress_sequences": [Tokens(tokens=["e", "x"])]},
        {"beam_size": 2, "terms": [TEA], "vocabulary_allow": ["T", "e"]},
    ],
)
def test_combinations_that_do_not_contradict_each_other(options: dict[str, Any]) -> None:
    convert(**options)


@pytest.mark.parametrize(("number", "tag"), [(50, b"\x90\x03"), (2000, b"\x80\x7d")])
def test_a_field_of_a_newer_client_is_refused(number: int, tag: bytes) -> None:
    newer = Options(max_decoding_length=5)
    newer.MergeFromString(tag + b"\x01")
    error = refusal(convert_message, newer)
    assert error.field == "options" and str(number) in error.reason
    sequence = A
    sequence.MergeFromString(tag + b"\x01")
    refusal(convert, suppress_sequences=[sequence])


integers = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 70)
reals = st.floats(width=32) | st.floats(0, 2, width=32)
tokens = st.sampled_from(["a", "b", "c", "</s>", "<unk>", "Ċ", "", "nothing"]) | st.text(max_size=3)
token_lists = st.lists(tokens, max_size=3)
terms = st.builds(Term, source=st.text(max_size=3), target=st.text(max_size=3))

BY_TYPE: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_INT32: integers,
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_FLOAT: reals,
    FieldDescriptor.CPPTYPE_STRING: st.text(max_size=8),
}
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    field.name: BY_TYPE.get(field.cpp_type, st.nothing()) for field in Options.DESCRIPTOR.fields
} | {
    "early_stopping": st.sampled_from(["true", "false", "never"]) | st.text(max_size=3),
    "segmentation": st.sampled_from(["none", "lines", "sentences"]) | st.text(max_size=3),
    "formality": st.sampled_from(["more", "prefer_less"]) | st.text(max_size=3),
    "suppress_sequences": st.lists(token_lists.map(lambda some: Tokens(tokens=some))),
    "stop_sequences": st.lists(st.text(max_size=4)),
    "keep": st.lists(st.text(max_size=3), max_size=3),
    "terms": st.lists(terms, max_size=3),
    **dict.fromkeys(
        ("suppress_tokens", "end_tokens", "target_prefix_tokens", "vocabulary_allow"), token_lists
    ),
}
# Few at a time, so that many are let through.
messages = (
    st.sets(st.sampled_from(sorted(FIELDS)), max_size=5)
    .flatmap(lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in sorted(names)}))
    .map(lambda fields: Options(**fields))
)


@settings(deadline=None, max_examples=150)
@given(message=messages)
def test_any_message_is_converted_to_valid_options_or_refused_by_field(message: Any) -> None:
    try:
        options = convert_message(message)
    except InvalidRequest as error:
        names = {f"options.{field.name}" for field in Options.DESCRIPTOR.fields}
        assert error.field in names
        assert error.reason
        return
    assert 1 <= options.rows <= MAX_ROWS
    assert 0 <= options.min_decoding_length <= options.max_decoding_length <= MAX_TARGET
    assert len(options.prefix) < options.max_decoding_length
    is_free = options.sampling is not None or options.return_alternatives
    assert options.num_hypotheses <= (MAX_ROWS if is_free else options.beam_size)
    assert options.beam_size == 1 or options.sampling is None
    assert all(options.suppressed)
    assert all(options.stops)
    assert options.beam_size > 1 or not options.coverage_penalty
    assert options.sampling is None or not options.terms
    assert options.prefix or not options.prefix_bias_beta
    sequences = (*options.suppressed, *options.terms)
    named = {*options.prefix, *options.end_ids, *(w for some in sequences for w in some)}
    named.update(options.vocabulary)
    assert named <= set(range(TOKENIZER.vocabulary_size))
