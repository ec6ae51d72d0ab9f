from typing import Any

import pytest

from seqserve.errors import OptionError
from seqserve.options import parse
from seqserve_export.options import ArtifactOptions


def options(*recommended: str) -> ArtifactOptions:
    argv = ["--name", "a", *(word for each in recommended for word in ("--recommend", each))]
    return parse(ArtifactOptions, argv, prog="p", description="d", environ={})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("beam_size=5", {"beam_size": 5}),
        ("length_penalty=0.6", {"length_penalty": 0.6}),
        ("keep_placeholders=true", {"keep_placeholders": True}),
        ("segmentation=sentences", {"segmentation": "sentences"}),
        ('target_prefix="5"', {"target_prefix": "5"}),
        ('suppress_sequences=[{"tokens": ["a"]}]', {"suppress_sequences": [{"tokens": ["a"]}]}),
    ],
)
def test_a_recommendation_is_json_or_a_text(text: str, value: dict[str, Any]) -> None:
    assert options(text).recommended() == value


def test_recommendations_go_before_what_the_model_comes_with() -> None:
    recommended = options("beam_size=5", "patience=2").recommended({"beam_size": 4, "top_k": 3})
    assert recommended == {"beam_size": 5, "patience": 2, "top_k": 3}
    assert options().recommended({"beam_size": 4}) == {"beam_size": 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beam_size", "'beam_size' has no = between two texts"),
        ("beams=5", r"options\.beams: cannot be recommended; what can is .*, beam_size, "),
        ("glossary=house", r"options\.glossary: cannot be recommended"),
        ("beam_size=wide", r"options\.beam_size: .*'wide'"),
        ("beam_size=0", r"options\.beam_size: is 0; it must be at least 1"),
        ("segmentation=words", r"options\.segmentation: is 'words'; .*none, lines, sentences"),
    ],
)
def test_a_wrong_recommendation_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"^--recommend: {message}"):
        options(text)


def test_a_model_that_comes_with_wrong_options_is_refused() -> None:
    with pytest.raises(OptionError, match="length_penalty: is -5"):
        options().recommended({"length_penalty": -5.0})
