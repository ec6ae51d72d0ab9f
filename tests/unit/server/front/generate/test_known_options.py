import gc
import weakref
from functools import partial

import pytest
from tests.unit.server.front.echo import echo_model
from tests.unit.server.front.generate.asking import FEATURES

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.generate.options import compile_options

Options = generation_pb2.GenerationOptions
compiled = partial(compile_options, features=FEATURES)


def test_equal_options_are_converted_once() -> None:
    served = echo_model()
    sent = Options(beam_size=3, target_prefix="ab")
    first, other = compiled(sent, served), compiled(sent, echo_model())
    assert first.decoding == other.decoding and first is not other
    assert compiled(Options(beam_size=3, target_prefix="ab"), served) is first
    assert compiled(Options(beam_size=2, target_prefix="ab"), served).decoding.beam_size == 2


def test_a_random_seed_differs_each_time() -> None:
    served = echo_model()
    samplings = {compiled(Options(top_k=5), served).decoding.sampling for _ in range(4)}
    assert len(samplings) == 4


def test_invalid_options_are_refused_each_time() -> None:
    served = echo_model()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="beam_size"):
            compiled(Options(beam_size=0), served)


def test_the_cache_is_bounded() -> None:
    served = echo_model()
    for number in range(600):
        compiled(Options(length_penalty=number / 600), served)
    assert len(served.known_options) <= 256


def test_long_options_are_converted_each_time() -> None:
    served, long = echo_model(), Options(stop_sequences=["x" * 200])
    assert compiled(long, served) is not compiled(long, served)


@pytest.mark.parametrize(
    "options",
    [
        Options(terms=[generation_pb2.Term(source="a", target="b")]),
        Options(keep_placeholders=True, lower_capitals=True, return_alignment=True),
        Options(replace_unknowns=True, draft_source=True),
    ],
)
def test_options_that_a_model_keeps_do_not_keep_the_model(options: Options) -> None:
    served = echo_model()
    tokenizer = weakref.ref(served.tokenizer)
    gc.disable()
    try:
        assert compiled(options, served).features
        del served
        assert tokenizer() is None
    finally:
        gc.enable()
