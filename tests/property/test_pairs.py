"""Whatever languages models declare, few models serve a pair, and the same ones each time."""

import random
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples

from seqserve.language_codes import folded
from seqserve_server.artifact.pairs import Legs, Pairs, Translator
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import InvalidRequest

CODES = ["en", "eng_Latn", "de", "deu_Latn", "de-AT", "ko", "zh", "zho_Hans", "zho_Hant", "fr"]
SIDES = st.lists(st.sampled_from(CODES), max_size=4, unique=True)


def translators_of(sides: list[tuple[list[str], list[str]]]) -> list[Translator]:
    return [
        Translator(
            f"m{index}",
            Template(
                source_languages=dict.fromkeys(sources, ""),
                target_languages=dict.fromkeys(targets, ""),
            ),
        )
        for index, (sources, targets) in enumerate(sides)
    ]


TRANSLATORS = st.lists(st.tuples(SIDES, SIDES), max_size=6).map(translators_of)


def legs_of(pairs: Pairs, source: str, target: str) -> Legs | None:
    try:
        return pairs.legs(source, target)
    except InvalidRequest as error:
        assert error.field in ("options.source_language", "options.target_language")
        return None


def serves(translator: Translator, source: str, target: str) -> bool:
    codes = {"source": source, "target": target}
    return all(translator.template.code_of(role, code) for role, code in codes.items())


@examples(200)
@given(TRANSLATORS)
@example(
    # Chinese is no pivot on the way to Chinese.
    translators_of([(["zh"], ["zho_Hans"]), (["en"], ["zho_Hans", "zho_Hant"])])
)
def test_legs_are_the_fewest_and_lead_from_the_source_to_the_target(
    translators: list[Translator],
) -> None:
    by_name = {each.name: each for each in translators}
    pairs = Pairs(translators, default="m1")
    for source, target in product(CODES, repeat=2):
        legs = legs_of(pairs, source, target)
        direct = [each for each in translators if serves(each, source, target)]
        if not legs:
            assert not direct
            continue
        assert (len(legs) == 1) is bool(direct)
        assert folded(legs[0].source).may_be(folded(source))
        assert folded(legs[-1].target).may_be(folded(target))
        for leg in legs:
            assert serves(by_name[leg.model], leg.source, leg.target)
        if len(legs) == 2:
            first, second = legs
            assert folded(first.target).may_be(folded(second.source))
            between = folded(first.target)
            assert not between.may_be(folded(source)) and not between.may_be(folded(target))


@examples(100)
@given(TRANSLATORS, st.randoms())
def test_the_order_in_which_models_were_loaded_does_not_count(
    translators: list[Translator], rng: random.Random
) -> None:
    shuffled = translators.copy()
    rng.shuffle(shuffled)
    for source, target in product(CODES, repeat=2):
        legs = legs_of(Pairs(translators, "m0"), source, target)
        assert legs == legs_of(Pairs(shuffled, "m0"), source, target)


@examples(100)
@given(TRANSLATORS)
def test_every_listed_pair_is_served_as_listed_and_every_served_pair_is_listed(
    translators: list[Translator],
) -> None:
    pairs = Pairs(translators)
    listed = list(pairs.all())
    for source, target, legs in listed:
        assert pairs.legs(source, target) == legs
    sides = {
        role: {code for each in translators for code in each.template.languages[role]}
        for role in ("source", "target")
    }
    for source, target in product(sides["source"], sides["target"]):
        if folded(source).name == folded(target).name or not legs_of(pairs, source, target):
            continue
        similar = [
            folded(s).name == folded(source).name and folded(t).name == folded(target).name
            for s, t, _ in listed
        ]
        assert any(similar)
