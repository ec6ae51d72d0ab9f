"""Languages of a request: where they go, and which are refused."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.front.echo import echo_model, manifest
from tests.unit.server.front.generate.asking import TOKENIZER, compiled, refusal

from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Template
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.front.generate.languages import Affixes, affixes_of

EN, DE, FR = "E", "D", "F"
"""Tokens that stand for languages."""
CODES = {"eng_Latn": EN, "deu_Latn": DE, "fra_Latn": FR}
ALIASES = {"en": "eng_Latn", "de": "deu_Latn"}


def served(**template: Any) -> Manifest:
    return replace(manifest(), template=Template(**template))


BOTH = {"source_languages": CODES, "target_languages": CODES, "aliases": ALIASES}
NLLB = served(source_prefix=["{source}"], target_prefix=["{target}"], **BOTH)
OPUS = served(source_prefix=["{target}"], target_languages={"deu": DE, "fra": FR})
T5 = served(
    text_prefix="translate {source} to {target}: ",
    source_languages={"en": "English"},
    target_languages={"de": "German", "fr": "French"},
)
MBART = served(source_suffix=["{source}"], target_start="{target}", **BOTH)
BART = served(source_prefix=["<s>"])


def placed(model: Manifest, source: str = "", target: str = "") -> Affixes:
    return affixes_of(source, target, model, TOKENIZER)


def refused(model: Manifest, source: str = "", target: str = "") -> tuple[str, str]:
    error = refusal(placed, model, source, target)
    return error.field, error.reason


def ids(*tokens: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.target.id_of(token) or -1 for token in tokens)


@pytest.mark.parametrize(
    ("model", "source", "target", "expected"),
    [
        (manifest(), "", "", Affixes()),
        (NLLB, "eng_Latn", "deu_Latn", Affixes(before=ids(EN), target=ids(DE))),
        (NLLB, "en", "de", Affixes(before=ids(EN), target=ids(DE))),
        (OPUS, "", "fra", Affixes(before=ids(FR))),
        (T5, "en", "de", Affixes(text="translate English to German: ")),
        (T5, "", "fr", Affixes(text="translate English to French: ")),
        (T5, "", "", Affixes()),
        (BART, "", "", Affixes(before=ids("<s>"))),
        (MBART, "en", "", Affixes(after=ids(EN))),
        (MBART, "en", "de", Affixes(after=ids(EN), start_token=ids(DE)[0])),
    ],
)
def test_each_family_puts_languages_in_its_place(
    model: Manifest, source: str, target: str, expected: Affixes
) -> None:
    assert placed(model, source, target) == expected


def test_tokens_go_around_those_of_the_source() -> None:
    assert placed(MBART, "en").with_special_tokens([5, 2]) == [5, 2, *ids(EN)]
    assert placed(NLLB, "en", "de").with_special_tokens([5, 2]) == [*ids(EN), 5, 2]


@pytest.mark.parametrize(
    ("model", "source", "target", "field", "reason"),
    [
        (NLLB, "en", "", "target", "is missing; echo/1 needs one of deu_Latn, eng_Latn, fra_Latn"),
        (NLLB, "", "de", "source", "is missing; echo/1 needs one of deu_Latn, eng_Latn, fra_Latn"),
        (NLLB, "xx", "de", "source", "'xx' is not one of deu_Latn, eng_Latn, fra_Latn"),
        (NLLB, "en", "nl", "target", "'nl' is not one of deu_Latn, eng_Latn, fra_Latn"),
        (OPUS, "en", "fra", "source", "is 'en', but echo/1 asks for none"),
        (OPUS, "", "", "target", "is missing; echo/1 needs one of deu, fra"),
        (MBART, "en", "xx", "target", "'xx' is not one of deu_Latn, eng_Latn, fra_Latn"),
        (T5, "en", "", "target", "is missing; echo/1 needs one of de, fr"),
        (manifest(), "", "de", "target", "is 'de', but echo/1 asks for none"),
    ],
)
def test_wrong_languages_are_refused_with_the_right_ones(
    model: Manifest, source: str, target: str, field: str, reason: str
) -> None:
    assert refused(model, source, target) == (f"options.{field}_language", reason)


def test_of_many_languages_some_are_listed() -> None:
    many = served(
        source_prefix=["{source}"], source_languages={f"l{number:03}": EN for number in range(202)}
    )
    assert refused(many)[1].endswith("l019 and 182 more, which `seqserve models` lists")


def convert(model: Manifest, **options: Any) -> DecodingOptions:
    return compiled(echo_model(model, TOKENIZER), **options).decoding


def test_target_language_comes_before_the_prefix_of_the_request() -> None:
    options = convert(NLLB, source_language="en", target_language="de", target_prefix="ab")
    assert options.prefix == ids(DE, "a", "b")


def test_options_that_the_model_recommends_can_be_overridden() -> None:
    recommended = {"beam_size": 4, "length_penalty": 0.6, "no_repeat_ngram_size": 3}
    model = replace(manifest(), generation=recommended)
    assert (convert(model).beam_size, convert(model).length_penalty) == (4, pytest.approx(0.6))
    overridden = convert(model, beam_size=2)
    assert (overridden.beam_size, overridden.length_penalty) == (2, pytest.approx(0.6))
    # A beam gives way to sampling.
    sampled = convert(model, temperature=0.5)
    assert (sampled.beam_size, sampled.no_repeat_ngram_size) == (1, 3)


def test_a_recommended_end_of_search_gives_way_where_it_does_not_apply() -> None:
    model = replace(manifest(), generation={"early_stopping": "never"})
    assert convert(model).is_plain
    assert convert(model, beam_size=4).is_persistent
    tea = generation_pb2.Term(source="tea", target="Tee")
    with_terms = convert(model, beam_size=4, terms=[tea])
    assert not with_terms.is_persistent
    # A source without the term is searched as without terms.
    assert replace(with_terms, terms=()) == convert(model, beam_size=4)
    assert not convert(model, beam_size=4, coverage_penalty=0.1).is_persistent
    assert not convert(model, temperature=0.5).early_stopping
    assert not convert(model, return_alternatives=True, num_hypotheses=2).early_stopping
    assert convert(model, beam_size=4, early_stopping="true").early_stopping == "true"


def test_recommended_languages_are_put_on_both_sides() -> None:
    recommended = {"source_language": "en", "target_language": "de"}
    model = replace(NLLB, generation=recommended)
    served = echo_model(model, TOKENIZER)
    assert compiled(served).affixes == placed(NLLB, "en", "de")
    assert compiled(served).decoding.prefix == ids(DE)
    french = compiled(served, target_language="fra_Latn")
    assert french.affixes == placed(NLLB, "en", "fra_Latn")
