"""Files of texts and of moments."""

from __future__ import annotations

import pytest

from seqserve.errors import OptionError
from seqserve.load.arrivals import moments_of, texts_of


def test_lines_and_json() -> None:
    assert texts_of(["a b\n", "\n", " c "], "f", is_json=False) == ["a b", "c"]
    lines = ['{"prompt": "a", "output_tokens": 3}\n', '{"source": "b"}']
    assert texts_of(lines, "f", is_json=True) == ["a", "b"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["\n"], "f: has no text"),
        (['{"prompt": "a"}', "b"], "f: line 2 is not JSON"),
        (['{"prompt": " "}'], "f: line 1 has no text in 'prompt' or 'source'"),
        (["[]"], "f: line 1 has no text in 'prompt' or 'source'"),
    ],
)
def test_texts_that_are_none(lines: list[str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        texts_of(lines, "f", is_json=True)


def test_moments_begin_at_zero() -> None:
    assert moments_of(["1700000000.5\n", "\n", "1700000000.5", "1700000002"], "f") == [0, 0, 1.5]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "f: has no moment"),
        (["1", "x"], "f: line 2: 'x' is not a number of seconds"),
        (["2", "1"], "f: line 2: 1 is not in order"),
        (["nan"], "f: line 1: nan is not in order"),
        (["1", "inf"], "f: line 2: inf is not in order"),
    ],
)
def test_moments_that_are_none(lines: list[str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        moments_of(lines, "f")
