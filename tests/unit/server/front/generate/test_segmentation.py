from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import FEATURES

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.records import Template
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.front.generate.options import compile_options
from seqserve_server.text.splitting import Segmentation

Options = generation_pb2.GenerationOptions
CODES = {"deu_Latn": "a", "eng_Latn": "b", "zh_Hans": "c"}
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
        ({}, {"segmentation": "lines"}, Segmentation(SegmentationMode.LINES, "en")),
        (
            {"segmentation": "sentences"},
            {},
            Segmentation(SegmentationMode.SENTENCES, "en", is_default=True),
        ),
        ({"segmentation": "sentences"}, {"segmentation": "none"}, None),
        ({"segmentation": "sentences"}, {"target_prefix": "a"}, None),
        (
            {"segmentation": "lines", "segmentation_language": "ja"},
            {},
            Segmentation(SegmentationMode.LINES, "ja", is_default=True),
        ),
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
    expected = Segmentation(SegmentationMode.SENTENCES, language)
    assert segmentation_of(sent, segmentation_language="ja") == expected


def test_the_engine_does_not_learn_of_it() -> None:
    described = replace(manifest(), generation={"segmentation": "sentences"})
    for options in (Options(), Options(segmentation="lines"), Options(target_prefix="a")):
        converted = compile_options(options, echo_model(described), FEATURES).decoding
        options.ClearField("segmentation")
        assert converted == compile_options(options, echo_model(), FEATURES).decoding
