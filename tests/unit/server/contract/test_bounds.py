import dataclasses

import pytest

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.contract import limits
from seqserve_server.contract.bounds import check_bounds
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions


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
def test_the_error_shows_enough_digits(name: str, value: float, shown: str) -> None:
    options = generation_pb2.GenerationOptions()
    setattr(options, name, value)
    with pytest.raises(InvalidRequest) as refused:
        check_bounds(options)
    assert str(refused.value).startswith(f"options.{name}: is {shown}; it must be ")


def test_limits_of_the_engine_are_those_of_the_proto() -> None:
    assert DECLARATIONS["suppress_tokens"].max_items == limits.MAX_SUPPRESSED
    assert DECLARATIONS["suppress_sequences"].max_items == limits.MAX_SUPPRESSED
    assert DECLARATIONS["end_tokens"].max_items == limits.MAX_END_TOKENS
    assert DECLARATIONS["return_top_tokens"].maximum == limits.MAX_TOP_K


def test_defaults_of_the_engine_are_those_of_the_proto() -> None:
    engine = {field.name: field.default for field in dataclasses.fields(DecodingOptions)}
    common = [name for name in DECLARATIONS if DECLARATIONS[name].default is not None]
    common = [name for name in common if name in engine]
    assert len(common) > 12
    assert {name: engine[name] for name in common} == {
        name: DECLARATIONS[name].default for name in common
    }


def test_bounds_are_divided() -> None:
    whole = limits.EngineLimits(
        workers=5, slots=9, max_queue=3, max_queue_tokens=100, max_source_tokens_per_step=64
    )
    shares = whole.shares(2)
    assert [share.workers for share in shares] == [3, 2]
    assert {(share.slots, share.max_queue, share.max_queue_tokens) for share in shares} == {
        (5, 2, 50.0)
    }
    assert whole.shares(1) == [whole]
