"""Checks of source texts, before and after they are tokenized."""

from __future__ import annotations

import pytest
from tests.unit.server.front.echo import MAX_SOURCE, manifest

from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.request.parts import check_source, check_source_tokens

MANIFEST = manifest()


@pytest.mark.parametrize("source", ["", " ", "\n\t", "\u3000\u2028", "a" * (MAX_SOURCE * 32 + 1)])
def test_sources_refused_before_they_are_tokenized(source: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_source(source, MANIFEST)
    assert caught.value.field == "source"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("source", ["a", " a ", "a" * MAX_SOURCE * 32])
def test_sources_accepted(source: str) -> None:
    check_source(source, MANIFEST)


@pytest.mark.parametrize("tokens", [0, 1, MAX_SOURCE + 1])
def test_token_counts_refused(tokens: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_source_tokens([5] * tokens, 0, MANIFEST)
    assert caught.value.field == "source"


def test_tokens_that_the_model_adds_count_too() -> None:
    with pytest.raises(InvalidRequest, match="the end token and 1 of the model; echo/1 reads at"):
        check_source_tokens([5] * MAX_SOURCE, 1, MANIFEST)


@pytest.mark.parametrize("tokens", [2, MAX_SOURCE])
def test_token_counts_accepted(tokens: int) -> None:
    check_source_tokens([5] * tokens, 0, MANIFEST)
