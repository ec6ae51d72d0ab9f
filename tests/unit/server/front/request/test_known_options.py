"""Equal options of a model are converted once, except random seeds."""

from __future__ import annotations

from typing import cast

import pytest
from tests.unit.server.front.echo import byte_tokenizer, manifest

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.messages import Ready
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.request.options import converted_options, read_options

Options = generation_pb2.GenerationOptions


class Engine:
    capacity = Ready(slots=8, max_rows=8, cache_bytes=0)


def model() -> ServedModel:
    engine = cast(EngineGroup, Engine())
    return ServedModel(
        manifest=manifest(), tokenizer=byte_tokenizer(), engine=engine, provider=Provider.CPU
    )


def test_equal_options_are_converted_once() -> None:
    served = model()
    sent = Options(beam_size=3, target_prefix="ab")
    first = read_options(sent, served)
    assert first.decoding == converted_options(sent, served.manifest, served.tokenizer, 8).decoding
    assert read_options(Options(beam_size=3, target_prefix="ab"), served) is first
    assert read_options(Options(beam_size=2, target_prefix="ab"), served).decoding.beam_size == 2


def test_each_model_has_options_of_its_own() -> None:
    assert read_options(Options(), model()) is not read_options(Options(), model())


def test_a_random_seed_differs_each_time() -> None:
    served = model()
    samplings = {read_options(Options(top_k=5), served).decoding.sampling for _ in range(4)}
    assert len(samplings) == 4


def test_invalid_options_are_refused_each_time() -> None:
    served = model()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="beam_size"):
            read_options(Options(beam_size=0), served)


def test_the_cache_is_bounded() -> None:
    served = model()
    for number in range(600):
        read_options(Options(length_penalty=number / 600), served)
    read_options(Options(stop_sequences=["x" * 200]), served)
    assert len(served.known_options) <= 256
    assert max(map(len, served.known_options)) <= 128
