import gc
import weakref
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import FEATURES

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.front.generate.options import compile_options
from seqserve_server.text.splitting import Segmentation

Options = generation_pb2.GenerationOptions
CODES = {"deu_Latn": "a", "eng_Latn": "b", "zh_Hans": "c"}
NONE, LINES, SENTENCES = SegmentationMode
JAPANESE = {"segmentation": "lines", "segmentation_language": "ja"}
TEMPLATE = Template(source_languages=CODES, aliases={"de": "deu_Latn", "deu": "deu_Latn"})


def segmentation_of(options: Options, **generation: Any) -> Segmentation | None:
    """Converts options for a model that recommends others."""
    model = replace(manifest(), generation=generation, template=TEMPLATE)
    return compile_options(options, echo_model(model), FEATURES).segmentation


@pytest.mark.parametrize(
    ("generation", "options", "expected"),
    [
        ({}, {}, None),
        ({}, {"segmentation": "none"}, None),
        ({}, {"segmentation": "lines"}, Segmentation(LINES, "en")),
        ({"segmentation": "sentences"}, {}, Segmentation(SENTENCES, "en", is_default=True)),
        ({"segmentation": "sentences"}, {"segmentation": "none"}, None),
        ({"segmentation": "sentences"}, {"target_prefix": "a"}, None),
        (JAPANESE, {}, Segmentation(LINES, "ja", is_default=True)),
    ],
)
def test_the_request_goes_before_the_model(
    generation: dict[str, Any], options: dict[str, Any], expected: Segmentation | None
) -> None:
    assert segmentation_of(Options(**options), **generation) == expected


@pytest.mark.parametrize(
    ("options", "language"),
    [
        ({}, "ja"),
        ({"source_language": "deu_Latn"}, "de"),
        ({"source_language": "de"}, "de"),
        ({"source_language": "zh_Hans"}, "zh"),
        ({"source_language": "deu_Latn", "segmentation_language": "es"}, "es"),
    ],
)
def test_the_language_is_that_of_the_source(options: dict[str, Any], language: str) -> None:
    sent = Options(segmentation="sentences", **options)
    expected = Segmentation(SENTENCES, language)
    assert segmentation_of(sent, segmentation_language="ja") == expected


def test_the_engine_does_not_learn_of_it() -> None:
    described = replace(manifest(), generation={"segmentation": "sentences"})
    for options in (Options(), Options(segmentation="lines"), Options(target_prefix="a")):
        converted = compile_options(options, echo_model(described), FEATURES).decoding
        options.ClearField("segmentation")
        assert converted == compile_options(options, echo_model(), FEATURES).decoding


known = partial(compile_options, features=FEATURES)


def test_equal_options_are_converted_once() -> None:
    served = echo_model()
    sent = Options(beam_size=3, target_prefix="ab")
    first, other = known(sent, served), known(sent, echo_model())
    assert first.decoding == other.decoding and first is not other
    assert known(Options(beam_size=3, target_prefix="ab"), served) is first
    assert known(Options(beam_size=2, target_prefix="ab"), served).decoding.beam_size == 2


def test_a_random_seed_differs_each_time() -> None:
    served = echo_model()
    samplings = {known(Options(top_k=5), served).decoding.sampling for _ in range(4)}
    assert len(samplings) == 4


def test_invalid_options_are_refused_each_time() -> None:
    served = echo_model()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="beam_size"):
            known(Options(beam_size=0), served)


def test_the_cache_is_bounded() -> None:
    served = echo_model()
    for number in range(600):
        known(Options(length_penalty=number / 600), served)
    assert len(served.known_options) <= 256


def test_long_options_are_converted_each_time() -> None:
    served, long = echo_model(), Options(stop_sequences=["x" * 200])
    assert known(long, served) is not known(long, served)


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
        assert known(options, served).features
        del served
        assert tokenizer() is None
    finally:
        gc.enable()
