"""Which models serve a pair of languages, and what is said where none does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from seqserve_server.artifact.template import Template
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.models.pairs import Leg, Pairs, Translator


def translator(name: str, sources: Sequence[str], targets: Sequence[str]) -> Translator:
    template = Template(
        source_languages=dict.fromkeys(sources, ""), target_languages=dict.fromkeys(targets, "")
    )
    return Translator(name, template)


EN_DE = translator("en-de", ["en"], ["de"])
KO_EN = translator("ko-en", ["ko"], ["en"])
EN_KO = translator("en-ko", ["en"], ["ko"])
KO_FR = translator("ko-fr", ["ko"], ["fr"])
FR_DE = translator("fr-de", ["fr"], ["de"])
MANY = translator("many", ["eng_Latn", "deu_Latn", "kor_Hang"], ["eng_Latn", "deu_Latn"])
SHIPPED = [EN_DE, KO_EN, EN_KO]


def refused(pairs: Pairs, source: str, target: str) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        pairs.legs(source, target)
    return caught.value.field, caught.value.reason


def test_a_pair_has_its_model() -> None:
    pairs = Pairs(SHIPPED)
    assert pairs.legs("en", "de") == (Leg("en-de", "en", "de"),)
    assert pairs.legs("en-US", "de_DE") == (Leg("en-de", "en", "de"),)
    assert pairs.legs("kor", "eng_Latn") == (Leg("ko-en", "ko", "en"),)


def test_a_model_of_few_pairs_goes_before_one_of_many_and_the_default_before_both() -> None:
    assert Pairs([MANY, EN_DE]).legs("en", "de") == (Leg("en-de", "en", "de"),)
    legs = Pairs([MANY, EN_DE], default="many").legs("en", "de")
    assert legs == (Leg("many", "eng_Latn", "deu_Latn"),)
    twin = translator("another", ["en"], ["de"])
    assert Pairs([EN_DE, twin]).legs("en", "de")[0].model == "another"


def test_a_pair_that_no_model_serves_goes_over_the_language_between_two() -> None:
    pairs = Pairs([*SHIPPED, KO_FR, FR_DE])
    assert pairs.legs("ko", "de") == (Leg("ko-en", "ko", "en"), Leg("en-de", "en", "de"))
    without_english = Pairs([KO_FR, FR_DE, EN_KO])
    assert without_english.legs("ko", "de") == (Leg("ko-fr", "ko", "fr"), Leg("fr-de", "fr", "de"))


def test_each_model_of_a_pivot_gets_its_own_code_of_the_language_between() -> None:
    pairs = Pairs([KO_EN, translator("large", ["eng_Latn"], ["fra_Latn"])])
    assert pairs.legs("ko", "fr") == (
        Leg("ko-en", "ko", "en"),
        Leg("large", "eng_Latn", "fra_Latn"),
    )


def test_one_language_is_enough_for_the_default_or_for_the_only_model_that_knows_it() -> None:
    pairs = Pairs(SHIPPED, default="en-de")
    assert pairs.legs("en", "") == (Leg("en-de", "en", ""),)
    assert pairs.legs("", "ko") == (Leg("en-ko", "", "ko"),)
    assert refused(Pairs(SHIPPED), "en", "") == (
        "options.target_language",
        "is missing; several models serve 'en': there are en to de, en to ko, ko to en, ko to de",
    )


def test_languages_that_nobody_knows_are_refused_by_their_field() -> None:
    pairs = Pairs(SHIPPED)
    assert refused(pairs, "fr", "de") == (
        "options.source_language",
        "no model reads 'fr'; the loaded ones know en, ko",
    )
    field, reason = refused(pairs, "en", "fr")
    assert field == "options.target_language"
    assert reason == "no model writes 'fr'; the loaded ones know de, en, ko"


def test_a_pair_of_no_model_and_no_two_is_refused_with_those_that_there_are() -> None:
    pairs = Pairs([EN_DE, translator("fr-it", ["fr"], ["it"])])
    assert refused(pairs, "en", "it") == (
        "options.target_language",
        "no model, and no two, turn 'en' into 'it'; there are en to de, fr to it",
    )
    assert refused(Pairs(SHIPPED), "en", "en-US")[0] == "options.target_language"


def test_where_no_model_declares_a_language_any_may_serve_the_request() -> None:
    assert Pairs([translator("m", [], [])]).legs("en", "de") == ()


def test_a_model_that_reads_and_writes_a_language_serves_it_from_itself() -> None:
    assert Pairs([EN_DE, MANY]).legs("en", "en") == (Leg("many", "eng_Latn", "eng_Latn"),)


def test_the_section_comes_before_the_field() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Pairs(SHIPPED).legs("fr", "de", section="")
    assert caught.value.field == "source_language"


def test_all_pairs_are_listed_once_the_direct_ones_first() -> None:
    listed = [(s, t, len(legs)) for s, t, legs in Pairs(SHIPPED).all()]
    assert listed == [("en", "de", 1), ("en", "ko", 1), ("ko", "en", 1), ("ko", "de", 2)]
    with_codes_of_another_form = {(s, t) for s, t, _ in Pairs([EN_DE, MANY]).all()}
    assert len(with_codes_of_another_form) == 4


def test_sources_are_named_once_whatever_forms_their_codes_have() -> None:
    assert Pairs(SHIPPED).sources() == ["en", "ko"]
    assert Pairs([*SHIPPED, MANY]).sources() == ["deu_Latn", "en", "ko"]
