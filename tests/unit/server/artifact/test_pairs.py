"""Which models serve a pair of languages, and what is said where none does."""

from collections.abc import Sequence

import pytest

from seqserve_server.artifact.pairs import Pairs, Translator
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import InvalidRequest


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
TWIN = translator("another", ["en"], ["de"])
LARGE = translator("large", ["eng_Latn"], ["fra_Latn"])
SHIPPED = [EN_DE, KO_EN, EN_KO]


@pytest.mark.parametrize(
    ("models", "default", "pair", "legs"),
    [
        # A pair has its model, in whatever form its codes are asked for.
        (SHIPPED, "", "en>de", "en-de en>de"),
        (SHIPPED, "", "en-US>de_DE", "en-de en>de"),
        (SHIPPED, "", "kor>eng_Latn", "ko-en ko>en"),
        # A model of few pairs goes before one of many, the default before both.
        ([MANY, EN_DE], "", "en>de", "en-de en>de"),
        ([MANY, EN_DE], "many", "en>de", "many eng_Latn>deu_Latn"),
        ([EN_DE, TWIN], "", "en>de", "another en>de"),
        # A pair that no model serves goes over the language between two, English first.
        ([*SHIPPED, KO_FR, FR_DE], "", "ko>de", "ko-en ko>en, en-de en>de"),
        ([KO_FR, FR_DE, EN_KO], "", "ko>de", "ko-fr ko>fr, fr-de fr>de"),
        # Each model of a pivot gets its own code of the language between.
        ([KO_EN, LARGE], "", "ko>fr", "ko-en ko>en, large eng_Latn>fra_Latn"),
        # One language is enough for the default, or for the only model that knows it.
        (SHIPPED, "en-de", "en>", "en-de en>"),
        (SHIPPED, "en-de", ">ko", "en-ko >ko"),
        # A model that reads and writes a language serves it from itself.
        ([EN_DE, MANY], "", "en>en", "many eng_Latn>eng_Latn"),
        # Where no model declares a language, any may serve the request.
        ([translator("m", [], [])], "", "en>de", ""),
    ],
)
def test_models_of_a_pair(models: list[Translator], default: str, pair: str, legs: str) -> None:
    found = Pairs(models, default=default).legs(*pair.split(">"))
    assert ", ".join(f"{leg.model} {leg.source}>{leg.target}" for leg in found) == legs


EN_MISSING = "several models serve 'en': available: en to de, en to ko, ko to en, ko to de"


@pytest.mark.parametrize(
    ("models", "pair", "field", "reason"),
    [
        (SHIPPED, "en>", "target_language", f"is missing; {EN_MISSING}"),
        (SHIPPED, "fr>de", "source_language", "no model reads 'fr'; the models know en, ko"),
        (SHIPPED, "en>fr", "target_language", "no model writes 'fr'; the models know de, en"),
        (
            [EN_DE, translator("fr-it", ["fr"], ["it"])],
            "en>it",
            "target_language",
            "no model, and no two, turn 'en' into 'it'; available: en to de, fr to it",
        ),
        (SHIPPED, "en>en-US", "target_language", "no model, and no two, turn 'en' into 'en-US'"),
    ],
)
def test_pair_of_no_model_is_refused_by_its_field(
    models: list[Translator], pair: str, field: str, reason: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Pairs(models).legs(*pair.split(">"))
    assert caught.value.field == f"options.{field}"
    assert caught.value.reason.startswith(reason)


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
    # A text in the target language needs no model, unless one rewrites it or nothing else is read.
    assert Pairs(SHIPPED).sources("en-US") == ["ko"]
    assert Pairs([*SHIPPED, MANY]).sources("en") == ["deu_Latn", "en", "ko"]
    assert Pairs([EN_DE]).sources("en") == ["en"]
