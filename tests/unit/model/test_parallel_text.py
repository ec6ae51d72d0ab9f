from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seqserve.errors import OptionError
from seqserve_model.data import Pair, Split, sentence_key, write_pairs
from seqserve_model.parallel_text import number_pairs, read_split, spell
from seqserve_model.recipe import Recipe


def numbered(first: int, last: int) -> list[Pair]:
    return [Pair(f"source {number}", f"target {number}") for number in range(first, last)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files ``a`` (0 to 49), ``b`` (40 to 59) and ``valid``."""
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "a", numbered(0, 50))
    write_pairs(tmp_path / "b", numbered(40, 60))
    # One pair of each file, one that shares its target alone, and one of its own.
    held_out = [*numbered(3, 4), *numbered(55, 56), Pair("other", "Target 7!"), Pair("x", "y")]
    write_pairs(tmp_path / "valid", held_out)
    return tmp_path


def split(*said: list[str], **data: Any) -> Split:
    lines = said[0] if said else []
    return read_split(Recipe.from_dict({"data": data}).data, lines.append)


def keys(pairs: list[Pair]) -> set[tuple[int, str]]:
    return {(side, sentence_key(text)) for pair in pairs for side, text in enumerate(pair)}


@pytest.mark.usefixtures("folder")
def test_a_pair_has_the_largest_weight_of_its_files() -> None:
    files = [{"path": "a", "weight": 0.5}, {"path": "b", "weight": 2}]
    found = split(files=files, validation_pairs=2, test_pairs=2)
    assert found.weights is not None
    assert len(found.training) == len(found.weights) == 56
    for pair, weight in zip(found.training, found.weights, strict=True):
        assert weight == (2.0 if int(pair.source.split()[1]) >= 40 else 0.5)


@pytest.mark.usefixtures("folder")
def test_no_sentence_of_an_own_file_is_trained_on() -> None:
    said: list[str] = []
    found = split(said, path="a", validation_path="valid", test_pairs=5)
    assert [pair.source for pair in found.validation] == ["source 3", "source 55", "other", "x"]
    assert len(found.test) == 5
    assert len(found.training) == 50 - 2 - 5
    assert not keys(found.validation) & keys(found.training)
    assert not keys(found.validation) & keys(found.test)
    assert "2 training pairs share a sentence with validation and are left out" in said


@pytest.mark.usefixtures("folder")
def test_nothing_is_held_out_where_both_files_are_given() -> None:
    found = split(path="a", validation_path="valid", test_path="b")
    assert found.test == numbered(40, 60)
    assert len(found.training) == 50 - 10 - 2
    assert found.weights is None


@pytest.mark.usefixtures("folder")
def test_a_file_that_is_not_held_out_is_only_trained_on() -> None:
    files = [{"path": "a"}, {"path": "b", "held_out": False, "weight": 0.5}]
    found = split(files=files, validation_pairs=20, test_pairs=20)
    held_out = found.validation + found.test
    assert {*held_out} <= {*numbered(0, 50)}
    # Pairs 40 to 49 are in both files, and belong to the one of the larger weight.
    assert {*numbered(50, 60)} <= {*found.training}
    assert not keys(held_out) & keys(found.training)
    assert found.weights == [0.5 if pair in numbered(50, 60) else 1 for pair in found.training]


def test_a_prefix_is_put_before_the_sources_of_its_file(folder: Path) -> None:
    write_pairs(folder / "c", [Pair(f"source {number}", f"other {number}") for number in range(50)])
    files = [{"path": "a", "prefix": "en: "}, {"path": "c", "prefix": "de: ", "held_out": False}]
    found = split(files=files, validation_pairs=5, test_pairs=5)
    held_out = found.validation + found.test
    assert all(pair.source.startswith("en: source ") for pair in held_out)
    tasks = {(pair.source[:4], pair.target.split()[0]) for pair in found.training}
    assert tasks == {("en: ", "target"), ("de: ", "other")}
    # A sentence that is held out for one task is trained on for none.
    sentences = {pair.source[4:] for pair in held_out}
    assert not sentences & {pair.source[4:] for pair in found.training}


def test_augmented_pairs_are_added_with_their_repeats_but_for_held_out_sentences(
    folder: Path,
) -> None:
    files = [{"path": "a", "weight": 0.5}]
    plain = split(files=files, validation_pairs=5, test_pairs=5, left_out_path="valid")
    more = [Pair("new", "neu"), Pair("new", "neu"), Pair("other", "etwas"), plain.test[0]]
    write_pairs(folder / "more", more)
    data = {"files": files, "left_out_path": "valid", "augmented_path": "more"}
    found = split(**data, validation_pairs=5, test_pairs=5)
    assert found.training == [*plain.training, *more[:2]]
    assert (found.validation, found.test) == (plain.validation, plain.test)
    assert plain.weights is not None
    assert found.weights == [*plain.weights, 1.0, 1.0]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"path": "a", "test_path": "none"}, "none: cannot be read"),
        ({"files": [{"path": "none"}]}, "none: cannot be read"),
        ({"path": "valid", "validation_path": "valid", "test_path": "b"}, "too few pairs"),
    ],
)
def test_what_cannot_be_read_or_leaves_nothing_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        split(**data)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (99, "ninety-nine"),
        (100, "one hundred"),
        (427, "four hundred twenty-seven"),
        (1_000, "one thousand"),
        (60_010, "sixty thousand ten"),
        (999_999, "nine hundred ninety-nine thousand nine hundred ninety-nine"),
    ],
)
def test_numbers_are_spelt(number: int, words: str) -> None:
    assert spell(number) == words


def test_pairs_are_different_and_of_all_lengths() -> None:
    pairs = list(number_pairs(500))
    assert len(pairs) == len(set(pairs)) == 500
    assert {len(pair.source) for pair in pairs} == {1, 2, 3, 4, 5, 6}
    assert "0" not in {pair.source for pair in pairs}
    assert all(pair.target == spell(int(pair.source)) for pair in pairs)
    assert pairs == list(number_pairs(500))


def test_many_pairs_have_all_short_numbers() -> None:
    sources = {pair.source for pair in number_pairs(20_000)}
    assert sources >= set(map(str, range(1, 1_000)))
    lengths = Counter(map(len, sources))
    assert [round(lengths[digits], -2) for digits in (4, 5, 6)] == [5_100, 7_200, 6_600]
