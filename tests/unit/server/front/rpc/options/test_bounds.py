"""What the numbers among the options may be, and what callers are told of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.rpc.options.bounds import _BOUNDS, numbers_of

ROOT = Path(__file__).parents[6]
PROTO = (ROOT / "proto/seqserve/v1/generation.proto").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/decoding.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("top_p", 1.0000001, "1.00000012"),
        ("min_p", 1.5, "1.5"),
        ("patience", 16.000002, "16.0000019"),
        ("repetition_penalty", 0.01562499, "0.0156249898"),
        ("temperature", -1e-7, "-1e-07"),
        ("beam_size", -3, "-3"),
        ("top_p", float("nan"), "nan"),
    ],
)
def test_a_value_that_is_refused_does_not_look_right(name: str, value: float, shown: str) -> None:
    options = generation_pb2.GenerationOptions()
    setattr(options, name, value)
    with pytest.raises(InvalidRequest) as refused:
        numbers_of(options)
    assert str(refused.value).startswith(f"options.{name}: is {shown}; it must be ")


def comment_of(name: str) -> str:
    """Gives what the contract says of an option."""
    found = re.search(rf"((?: +//.*\n)+) +optional \w+ {name} =", PROTO)
    assert found is not None
    return " ".join(line.strip(" /") for line in found[1].splitlines())


@pytest.mark.parametrize("name", _BOUNDS)
def test_the_contract_tells_every_bound(name: str) -> None:
    bounds, comment = _BOUNDS[name], comment_of(name)
    for edge in (bounds.least, bounds.most):
        shown = "1/64" if edge == 1 / 64 else f"{edge:g}"
        assert shown == "inf" or re.search(rf"\b{shown}\b", comment), f"{name}: {shown}"


@pytest.mark.parametrize("name", _BOUNDS)
def test_the_page_tells_what_is_most(name: str) -> None:
    most = _BOUNDS[name].most
    if f"`{name}`" in PAGE and 1 < most < float("inf"):
        rows = [row for row in PAGE.splitlines() if row.startswith("| ") and f"`{name}`" in row]
        assert any(f"{most:,.0f}" in row for row in rows)
