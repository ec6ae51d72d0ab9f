import dataclasses
import shlex
import typing
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve import GenerateOptions, Priority, requests
from seqserve.command.connection import DecodingOptions
from seqserve.declarations import DECLARATIONS
from seqserve.errors import OptionError
from seqserve.option_values import variable_of
from seqserve.options import flag_of, parse

NAMES = sorted(set(GenerateOptions.__annotations__) - {"model", "version"})
# No token holds white space: it is what the words of a sequence are parted by.
TOKENS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    str: TEXTS,
    Sequence[str]: st.lists(TEXTS, min_size=1, max_size=3),
    Sequence[Sequence[str]]: st.lists(
        st.lists(TOKENS, min_size=1, max_size=3), min_size=1, max_size=3
    ),
    # The source is the text before the first =.
    Mapping[str, str]: st.dictionaries(
        TEXTS.filter(lambda text: "=" not in text), TEXTS, min_size=1, max_size=3
    ),
    Priority: st.sampled_from(Priority),
}


def values_of(name: str) -> st.SearchStrategy[Any]:
    kind = typing.get_args(typing.get_type_hints(GenerateOptions)[name])[0]
    if typing.get_origin(kind) is typing.Literal:
        return st.sampled_from(typing.get_args(kind))
    if kind not in (int, float):
        return VALUES[kind]
    declared = DECLARATIONS[name]
    low, high = declared.minimum, declared.maximum
    if kind is int:
        return st.integers(low, 2**31 - 1 if high is None else high)
    return st.floats(low, high, width=32).filter(declared.allows)


KEYWORDS = st.fixed_dictionaries({}, optional={name: values_of(name) for name in NAMES})


def read(*argv: str, **environ: str) -> DecodingOptions:
    return parse(DecodingOptions, argv, prog="p", description="d", environ=environ)


def test_every_option_has_a_flag() -> None:
    assert sorted(field.name for field in dataclasses.fields(DecodingOptions)) == NAMES


def test_its_help_shows_options_as_flags_and_values_as_they_are() -> None:
    helps = {field.name: field.metadata["help"] for field in dataclasses.fields(DecodingOptions)}
    assert "--beam-size times" in helps["patience"]
    assert "prefer_more and prefer_less" in helps["formality"]
    assert "--prefer" not in "".join(helps.values())


def elements_of(value: Any) -> list[str]:
    """Returns the value of each repetition of a flag."""
    if isinstance(value, dict):
        return ["=".join(pair) for pair in value.items()]
    return [" ".join(each) if isinstance(each, list) else each for each in value]


@given(KEYWORDS)
def test_flags_and_variables_give_the_same_request_as_keywords(keywords: GenerateOptions) -> None:
    flags, variables = [], {}
    for name, value in keywords.items():
        if isinstance(value, list | dict):
            elements = elements_of(value)
            flags += [f"{flag_of(name)}={text}" for text in elements]
            variables[variable_of(name)] = shlex.join(elements)
        else:
            text = str(value.value if isinstance(value, Priority) else value)
            is_switch = isinstance(value, bool)
            flags.append(
                flag_of(name if value else f"no_{name}") if is_switch else f"{flag_of(name)}={text}"
            )
            variables[variable_of(name)] = text
    by_flag = requests.generate_request("a", **read(*flags).decoding())
    assert by_flag == requests.generate_request("a", **keywords)
    # An empty variable counts as not set; that of segmentation belongs to the server.
    told = {name: v for name, v in keywords.items() if v != "" and name != "segmentation"}
    by_variable = requests.generate_request("a", **read(**variables).decoding())
    assert by_variable == requests.generate_request("a", **cast(GenerateOptions, told))


def test_the_help_has_groups_and_declared_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(":") and line[0] != " "] == [
        "options:",
        "languages:",
        "segmentation:",
        "length:",
        "beam search:",
        "alternatives, as many as --num-hypotheses:",
        "sampling, in place of search; any of these switches it on:",
        "constraints; tokens are as `generate --json` shows them, with ▁ for a space:",
        "drafts of the answer, which do not change it:",
        "output:",
    ]
    shown = " ".join(" ".join(lines).split())
    assert (
        "--patience NUMBER Search ends when --beam-size times this many hypotheses are finished."
        " Above 0 and at most 16; 1 by default. [SEQSERVE_PATIENCE]" in shown
    )
    assert "--terms SOURCE=TARGET Words" in shown
    assert "--suppress-sequences WORDS Sequences of tokens" in shown
    assert "With --json: return the log-probability of each token." in shown


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--beam-size=0", "'0' is not at least 1"),
        ("--min-p=1.5", "'1.5' is not at least 0 and at most 1"),
        ("--temperature=0", "'0' is not above 0 and at most 1000"),
        ("--segmentation=words", "'words' is not one of none, lines, sentences"),
        ("--patience=x", "'x' is not a number"),
    ],
)
def test_bounds_of_the_proto_hold_for_flags(flag: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"^{flag.partition('=')[0]}: {reason}$"):
        read(flag)
