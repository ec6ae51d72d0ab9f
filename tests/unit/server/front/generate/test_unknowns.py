from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.test_response import TOKENIZER, UNK, ids, packed
from tests.unit.server.front.generate.written import written

from seqserve_server.artifact.records import Template
from seqserve_server.contract.events import Finished, Hypothesis, StopReason

LANGUAGES: Any = {"source_languages": {"en": "e"}, "target_languages": {"de": "d"}}
MODELS = {
    "before": Template(source_prefix=["{source}"], **LANGUAGES),
    "after the end token": Template(source_suffix=["{source}"], **LANGUAGES),
    "in words": Template(text_prefix="{source}: ", **LANGUAGES),
}


@pytest.mark.parametrize("place", MODELS)
def test_a_token_of_the_language_is_no_word_of_the_source(place: str) -> None:
    model = echo_model(replace(manifest(), template=MODELS[place]), TOKENIZER)
    [e], end = ids("e"), TOKENIZER.eos_id
    source = {
        "before": [e, *ids("xyz"), end],
        "after the end token": [*ids("xyz"), end, e],
        "in words": [*ids("e: xyz"), end],
    }[place]
    # It attends to the language, or to the end token, most, and to the y after that.
    rows = [[0.5 if each == ids("y")[0] else 0.9 for each in source]]
    for each in map(source.index, ids("xz")):
        rows[0][each] = 0.1
    hypothesis = Hypothesis([UNK], -1.0, StopReason.EOS, attention=packed(*rows))
    found = written(
        model, "xyz", source, Finished([hypothesis]), replace_unknowns=True, source_language="en"
    )
    assert found.hypotheses[0].text == "y"
