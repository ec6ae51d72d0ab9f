import math
import typing
from collections.abc import Mapping, Sequence
from typing import Literal

import pytest

from seqserve.declarations import DECLARATIONS
from seqserve.v1.generation_options import GenerationOptions


def test_every_option_is_declared_in_full() -> None:
    for declared in DECLARATIONS.values():
        assert declared.help.endswith("."), declared.name
        assert declared.group, declared.name
        assert declared.kind not in (int, float) or declared.minimum is not None, declared.name


def test_the_generated_keywords_have_the_declared_types() -> None:
    kinds = {list[str]: Sequence[str], dict[str, str]: Mapping[str, str]}
    kinds[list[list[str]]] = Sequence[Sequence[str]]
    hints = typing.get_type_hints(GenerationOptions)
    # Takes True and False for its words too.
    assert hints.pop("early_stopping") == Literal["true", "false", "never"] | bool | None
    assert hints == {
        name: (Literal[each.choices] if each.choices else kinds.get(each.kind, each.kind)) | None
        for name, each in DECLARATIONS.items()
        if name != "early_stopping"
    }


@pytest.mark.parametrize(
    ("name", "allowed", "refused", "bounds"),
    [
        ("beam_size", [1, 7], [0, -1], "at least 1"),
        ("length_penalty", [-4.0, 16.0], [-4.1, 16.1], "at least -4 and at most 16"),
        ("patience", [0.1, 16.0], [0.0, 16.1], "above 0 and at most 16"),
        ("prefix_bias_beta", [0.0, 0.9], [-0.1, 1.0], "at least 0 and below 1"),
        ("repetition_penalty", [1 / 64, 64.0], [0.015, 65.0], "at least 0.015625 and at most 64"),
        ("return_top_tokens", [0, 64], [65], "at least 0 and at most 64"),
    ],
)
def test_bounds(name: str, allowed: list[float], refused: list[float], bounds: str) -> None:
    declared = DECLARATIONS[name]
    assert declared.bounds == bounds
    assert all(declared.allows(value) for value in allowed)
    assert not any(declared.allows(value) for value in [*refused, math.nan])


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("patience", "Above 0 and at most 16; 1 by default."),
        ("return_scores", "True by default."),
        ("terms", "At most 16."),
        ("segmentation", "One of none, lines, sentences."),
        ("disable_unk", "Never generate the unknown token."),
        ("target_prefix", "Text that every hypothesis begins with."),
    ],
)
def test_the_text_tells_help_bounds_and_default(name: str, facts: str) -> None:
    declared = DECLARATIONS[name]
    assert declared.text.startswith(declared.help)
    assert declared.text.endswith(facts)
