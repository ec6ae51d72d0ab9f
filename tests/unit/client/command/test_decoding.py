from __future__ import annotations

import dataclasses
import shlex
import typing
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve import GenerateOptions, requests
from seqserve.command.decoding import DecodingOptions
from seqserve.options import flag_of, parse, variable_of

NAMES = sorted(set(GenerateOptions.__annotations__) - {"model", "version"})
# No token holds white space: it is what the words of a sequence are parted by.
TOKENS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = {"top_p": st.floats(0, 1, width=32), "min_p": st.floats(0, 1, width=32)}
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(1, 2**31 - 1),
    float: st.floats(0, 1e6, width=32),
    bool: st.booleans(),
    str: TEXTS,
    Sequence[str]: st.lists(TEXTS, min_size=1, max_size=3),
    Sequence[Sequence[str]]: st.lists(
        st.lists(TOKENS, min_size=1, max_size=3), min_size=1, max_size=3
    ),
}
SAID = st.fixed_dictionaries(
    {},
    optional={
        name: NUMBERS.get(
            name, VALUES[typing.get_args(typing.get_type_hints(GenerateOptions)[name])[0]]
        )
        for name in NAMES
    },
)


def read(*argv: str, **environ: str) -> DecodingOptions:
    return parse(DecodingOptions, argv, prog="p", description="d", environ=environ)


def test_every_option_has_a_flag() -> None:
    assert sorted(field.name for field in dataclasses.fields(DecodingOptions)) == NAMES


def test_what_is_not_given_is_left_to_the_server() -> None:
    assert not requests.generate_request("a", **read().decoding()).HasField("options")


def flags_of(said: GenerateOptions) -> list[str]:
    flags = []
    for name, value in said.items():
        for element in value if isinstance(value, list) else [value]:
            if isinstance(value, bool):
                flags.append(flag_of(name if value else f"no_{name}"))
            else:
                text = " ".join(element) if isinstance(element, list) else str(element)
                flags.append(f"{flag_of(name)}={text}")
    return flags


@given(SAID)
def test_flags_say_what_keywords_say(said: GenerateOptions) -> None:
    by_flag = requests.generate_request("a", **read(*flags_of(said)).decoding())
    assert by_flag == requests.generate_request("a", **said)


def variables_of(said: GenerateOptions) -> dict[str, str]:
    variables = {}
    for name, value in said.items():
        if isinstance(value, list):
            words = [" ".join(each) if isinstance(each, list) else each for each in value]
            variables[variable_of(name)] = shlex.join(words)
        else:
            variables[variable_of(name)] = str(value)
    return variables


@given(SAID)
def test_variables_say_what_keywords_say(said: GenerateOptions) -> None:
    if said.get("target_prefix") == "":
        # An empty variable counts as not set.
        del said["target_prefix"]
    by_variable = requests.generate_request("a", **read(**variables_of(said)).decoding())
    assert by_variable == requests.generate_request("a", **said)


def test_the_help_teaches_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    shown = capsys.readouterr().out
    headings = [line for line in shown.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == [
        "options:",
        "length:",
        "beam search:",
        "sampling, in place of search; any of these switches it on:",
        "constraints; tokens are as the tokenizer writes them:",
        "output:",
    ]
