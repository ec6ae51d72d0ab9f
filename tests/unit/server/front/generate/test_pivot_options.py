from typing import Any

import pytest
from tests.unit.server.front.generate.asking import refusal

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.pairs import Leg
from seqserve_server.front.generate.options import divide_options

Options = generation_pb2.GenerationOptions
FIRST, SECOND = Leg("ko-en", "ko", "en"), Leg("en-de", "en", "de")
LANGUAGES = {"source_language": "kor", "target_language": "deu"}


def divided(**options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what each model gets beside its languages."""
    sent = Options(**LANGUAGES, **options)
    both = []
    for taken, leg in zip(divide_options(sent, FIRST, SECOND), (FIRST, SECOND), strict=True):
        assert (taken.source_language, taken.target_language) == (leg.source, leg.target)
        values = {field.name: value for field, value in taken.ListFields()}
        both.append({name: values[name] for name in values if name not in LANGUAGES})
    return both[0], both[1]


def test_both_models_search_alike() -> None:
    search = {"beam_size": 3, "no_repeat_ngram_size": 2, "time_limit_ms": 900, "shortlist": False}
    assert divided(**search) == (search, search)


def test_what_concerns_the_text_is_for_the_second_model() -> None:
    text = {"max_decoding_length": 20, "stop_sequences": ["."], "num_hypotheses": 2, "seed": 3}
    assert divided(**text) == ({}, text)


def test_sentences_end_by_the_rules_of_the_language_that_a_model_reads() -> None:
    sent = {"segmentation": "sentences", "segmentation_language": "ko"}
    assert divided(**sent) == (sent, {"segmentation": "sentences"})


def test_a_source_with_a_prefix_for_its_answer_is_not_divided_by_default() -> None:
    assert divided(target_prefix="Der") == ({"segmentation": "none"}, {"target_prefix": "Der"})
    sent = {"target_prefix": "Der", "segmentation": "lines"}
    assert divided(**sent) == ({"segmentation": "lines"}, sent)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("terms", {"terms": [generation_pb2.Term(source="a", target="b")]}),
        ("glossary", {"glossary": "a"}),
        ("return_attention", {"return_attention": True}),
    ],
)
def test_what_needs_one_model_is_refused_by_name(name: str, options: dict[str, Any]) -> None:
    refused = refusal(divided, **options)
    assert refused.field == f"options.{name}" and "'en' lies between" in refused.reason


def test_every_option_reaches_a_model_or_is_refused() -> None:
    full = Options(**LANGUAGES)
    for name, declared in DECLARATIONS.items():
        if name in (*LANGUAGES, "terms", "glossary", "return_attention", "suppress_sequences"):
            continue
        value: Any = {int: 1, float: 0.5, bool: True, str: "none"}.get(declared.kind, ["a"])
        holder = getattr(full, name)
        holder.extend(value) if isinstance(value, list) else setattr(full, name, value)
    taken = {
        field.name
        for options in divide_options(full, FIRST, SECOND)
        for field, _ in options.ListFields()
    }
    assert taken == {field.name for field, _ in full.ListFields()}
