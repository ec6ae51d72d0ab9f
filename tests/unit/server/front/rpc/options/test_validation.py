"""Checks of fields: which field is named, and where the bounds are."""

from __future__ import annotations

import pytest
from tests.unit.server.front.rpc.echo import MAX_SOURCE, MAX_TARGET, byte_tokenizer, manifest

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.rpc.options.options import decoding_options
from seqserve_server.front.rpc.options.validation import check_source, check_source_tokens

MANIFEST = manifest()
Options = generation_pb2.GenerationOptions


@pytest.mark.parametrize("source", ["", " ", "\n\t", "\u3000\u2028", "a" * (MAX_SOURCE * 32 + 1)])
def test_sources_refused_before_they_are_tokenised(source: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_source(source, MANIFEST)
    assert caught.value.field == "source"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("source", ["a", " a ", "a" * MAX_SOURCE * 32])
def test_sources_let_through(source: str) -> None:
    check_source(source, MANIFEST)


@pytest.mark.parametrize("tokens", [0, 1, MAX_SOURCE + 1])
def test_token_counts_refused(tokens: int) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_source_tokens([5] * tokens, MANIFEST)
    assert caught.value.field == "source"


@pytest.mark.parametrize("tokens", [2, MAX_SOURCE])
def test_token_counts_let_through(tokens: int) -> None:
    check_source_tokens([5] * tokens, MANIFEST)


@pytest.mark.parametrize(
    ("options", "longest", "shortest"),
    [
        (Options(), MAX_TARGET, 0),
        (Options(max_decoding_length=1), 1, 0),
        (Options(max_decoding_length=MAX_TARGET), MAX_TARGET, 0),
        (Options(min_decoding_length=0), MAX_TARGET, 0),
        (Options(min_decoding_length=MAX_TARGET), MAX_TARGET, MAX_TARGET),
        (Options(min_decoding_length=7, max_decoding_length=7), 7, 7),
    ],
)
def test_options(options: Options, longest: int, shortest: int) -> None:
    found = decoding_options(options, MANIFEST, byte_tokenizer(), 8)
    assert (found.max_decoding_length, found.min_decoding_length) == (longest, shortest)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (Options(max_decoding_length=0), "max_decoding_length"),
        (Options(max_decoding_length=-(2**31)), "max_decoding_length"),
        (Options(max_decoding_length=MAX_TARGET + 1), "max_decoding_length"),
        (Options(min_decoding_length=-1), "min_decoding_length"),
        (Options(min_decoding_length=MAX_TARGET + 1), "min_decoding_length"),
        (Options(min_decoding_length=8, max_decoding_length=7), "min_decoding_length"),
    ],
)
def test_options_refused(options: Options, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoding_options(options, MANIFEST, byte_tokenizer(), 8)
    assert caught.value.field == f"options.{field}"


def test_option_of_a_newer_client_is_refused() -> None:
    options = Options.FromString(b"\xf8\x07\x05")  # field 127 = 5
    with pytest.raises(InvalidRequest, match="field 127 is not known"):
        decoding_options(options, MANIFEST, byte_tokenizer(), 8)
