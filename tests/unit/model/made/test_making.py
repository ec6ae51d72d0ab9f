"""Made pairs: as many as the recipe weights, the same by the same seed, none of them held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqserve_model.data import Pair, sentence_key, write_pairs
from seqserve_model.made.making import Maker
from seqserve_model.parallel_text import read_split
from seqserve_model.recipe import MadeRecipe, Recipe

KINDS = (
    "names", "numbers", "endings", "letters", "joined", "around", "phrases", "words", "messages",
    "nouns",
)  # fmt: skip
PAIRS = [Pair(f"Tom saw {n} cats.", f"Tom sah {n} Katzen.") for n in range(100, 200)]


def made(**recipe: Any) -> list[Pair]:
    return list(Maker(MadeRecipe(**recipe), PAIRS).pairs())


def test_nothing_is_made_unless_a_recipe_weights_it() -> None:
    assert made() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_is_a_number_of_pairs_for_each_pair(kind: str) -> None:
    assert len(made(**{kind: 0.5})) == 50
    assert len(made(**{kind: 2.0})) == 200


def test_a_seed_decides_what_is_made() -> None:
    weights = dict.fromkeys(KINDS, 0.3)
    assert made(**weights) == made(**weights)
    assert made(**weights) != made(**weights, seed=2)


def test_pairs_without_a_name_give_none() -> None:
    recipe = MadeRecipe(names=1.0)
    assert list(Maker(recipe, [Pair("It rains.", "Es regnet.")]).pairs()) == []


def test_a_language_that_spells_names_its_own_way_keeps_them() -> None:
    recipe = MadeRecipe(names=1.0, endings=1.0, phrases=1.0, nouns=1.0, target_language="ko")
    pairs = list(Maker(recipe, [Pair("Tom sleeps.", "톰은 잔다.")]).pairs())
    assert len(pairs) == 2
    assert pairs[0].target.startswith("톰은 잔다")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    names = [Pair(f"Tom is fond of {n}.", f"Tom mag {n}.") for n in range(100, 200)]
    write_pairs(tmp_path / "a", names)
    return tmp_path / "a"


def keys(pairs: list[Pair]) -> set[tuple[int, str]]:
    return {(side, sentence_key(text)) for pair in pairs for side, text in enumerate(pair)}


def split_of(corpus: Path, **data: Any) -> Any:
    content = {"validation_pairs": 10, "test_pairs": 10, **data}
    if "files" not in data:
        content["path"] = str(corpus)
    return read_split(Recipe.from_dict({"data": content}).data, lambda line: None)


def test_made_pairs_are_trained_on_beside_the_others(corpus: Path) -> None:
    plain, widened = split_of(corpus), split_of(corpus, made={"endings": 1.0, "numbers": 1.0})
    assert (plain.validation, plain.test) == (widened.validation, widened.test)
    assert widened.training[: len(plain.training)] == plain.training
    assert len(widened.training) > 2 * len(plain.training)
    assert not keys(widened.training) & keys(widened.validation + widened.test)


def test_made_pairs_have_a_weight_of_one_and_the_prefix_of_the_first_file(corpus: Path) -> None:
    files = [{"path": str(corpus), "weight": 0.5, "prefix": "de: "}]
    split = split_of(corpus, files=files, made={"joined": 0.5})
    assert split.weights == [0.5] * 80 + [1.0] * 40
    assert all(pair.source.startswith("de: ") for pair in split.training)
    assert not any("de:" in pair.target for pair in split.training)


def test_pairs_left_out_are_neither_trained_on_nor_made(corpus: Path, tmp_path: Path) -> None:
    plain = split_of(corpus)
    left_out = plain.training[:40]
    write_pairs(tmp_path / "mine", left_out)
    split = split_of(corpus, left_out_path=str(tmp_path / "mine"), made={"endings": 2.0})
    assert (plain.validation, plain.test) == (split.validation, split.test)
    assert not keys(split.training) & keys(left_out)
