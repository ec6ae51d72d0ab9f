"""Equal options are converted once, except random seeds."""

from __future__ import annotations

import gc
from typing import cast

import pytest
from tests.unit.server.front.echo import byte_tokenizer, manifest

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.provider import Provider
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.request.options import KnownOptions, decoding_options

Options = generation_pb2.GenerationOptions


class Engine:
    max_rows = 8


def model() -> ServedModel:
    engine = cast(EngineGroup, Engine())
    return ServedModel(
        manifest=manifest(), tokenizer=byte_tokenizer(), engine=engine, provider=Provider.CPU
    )


def test_equal_options_are_converted_once() -> None:
    known, served = KnownOptions(), model()
    sent = Options(beam_size=3, target_prefix="ab")
    first = known.read(served, sent)
    assert first == decoding_options(sent, served.manifest, served.tokenizer, 8)
    assert known.read(served, Options(beam_size=3, target_prefix="ab")) is first
    assert known.read(served, Options(beam_size=2, target_prefix="ab")).beam_size == 2


def test_each_model_has_its_own_cache_which_ends_with_it() -> None:
    known, served = KnownOptions(), model()
    other = model()
    assert known.read(served, Options()) is not known.read(other, Options())
    del served
    gc.collect()
    assert len(known._known) == 1


def test_a_random_seed_differs_each_time() -> None:
    known, served = KnownOptions(), model()
    samplings = {known.read(served, Options(top_k=5)).sampling for _ in range(4)}
    assert len(samplings) == 4


def test_invalid_options_are_refused_each_time() -> None:
    known, served = KnownOptions(), model()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="beam_size"):
            known.read(served, Options(beam_size=0))


def test_the_cache_is_bounded() -> None:
    known, served = KnownOptions(), model()
    for number in range(600):
        known.read(served, Options(length_penalty=number / 600))
    known.read(served, Options(stop_sequences=["x" * 200]))
    [kept] = known._known.values()
    assert len(kept) <= 256
    assert max(map(len, kept)) <= 128
