import gzip
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recipes.augment.__main__ import augmented, write
from recipes.augment.values import rows, table
from recipes.confidence import Sample, estimates, fit
from recipes.german import __main__ as german
from recipes.korean import __main__ as korean

from seqserve_model.data import Pair, sentence_key
from seqserve_model.parallel_text import read_split
from seqserve_model.recipe import Recipe

RECIPES = Path(__file__).parents[3] / "recipes"
WEIGHTS: dict[str, Any] = {
    "names": 0.3, "numbers": 0.3, "endings": 0.3, "letters": 0.3, "joined": 0.3, "around": 0.3,
    "phrases": 0.3, "words": 0.3, "messages": 0.3, "several": 0.3, "nouns": 0.3,
}  # fmt: skip


def keys(pairs: Sequence[Pair]) -> set[tuple[int, str]]:
    return {(side, sentence_key(text)) for pair in pairs for side, text in enumerate(pair)}


def test_everyday_sentences_are_those_that_are_here_and_none_is_shown() -> None:
    packed = (RECIPES / "korean" / "everyday-eng-kor.tsv.gz").read_bytes()
    lines = gzip.decompress(packed).decode().splitlines()
    made = korean.sentences(2_000)
    assert ["\t".join(pair) for pair in made] == lines[:2_000]
    assert len(set(lines)) == len(lines) == 30_000
    assert not korean.shown().intersection(side for line in lines for side in line.split("\t"))


@pytest.mark.parametrize(
    ("source", "target", "digest"),
    [("en", "de", "d4f0f099e2fc"), ("en", "ko", "87db3cd4c030"), ("ko", "en", "5674f9a26e13")],
)
def test_augmented_pairs_are_equal_to_the_bit_and_none_is_held_out(
    tmp_path: Path, source: str, target: str, digest: str
) -> None:
    folder = "german" if target == "de" else "korean"
    data = {
        "files": [
            {"path": str(RECIPES / folder / "held-out.tsv")},
            {"path": str(RECIPES / folder / "shown.tsv"), "held_out": False},
        ][: 1 if folder == "german" else 2],
        "source_column": int(source == "ko"),
        "target_column": int(source != "ko"),
        "validation_pairs": 20,
        "test_pairs": 20,
        "augmented_path": str(tmp_path / "more.tsv.gz"),
    }
    languages = {"source": source, "target": target}
    recipe = Recipe.from_dict({"data": data, "languages": languages})
    made = augmented(recipe, {**WEIGHTS, "times": {str(RECIPES / folder / "shown.tsv"): 2}})
    text = "".join("\t".join(pair) + "\n" for pair in made)
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == digest
    write(made, recipe.data)
    split = read_split(recipe.data, lambda line: None)
    assert split.training[-len(made) :] == made
    assert not keys(split.training) & keys([*split.validation, *split.test])


def test_each_section_of_weights_is_a_recipe_that_names_its_augmented_pairs() -> None:
    for name, weights in table("weights.toml").items():
        [path] = RECIPES.glob(f"*/{name}.toml")
        data = Recipe.load(path).data
        assert data.augmented_path == f"data/{name}-augmented.tsv.gz"
        assert weights.keys() <= {*WEIGHTS, "seed", "times"}
        assert {*weights.get("times", ())} <= {file.path for file in data.files}


@pytest.fixture
def lines() -> list[german.Line]:
    return german.development()


def test_the_development_set_is_sound_and_not_trained_on(lines: list[german.Line]) -> None:
    sentences = {sentence_key(line.source) for line in lines}
    assert len(lines) == len(sentences) == 304
    assert min(Counter(line.category for line in lines).values()) >= 12
    spans = [(ways, line.reference) for line in lines for ways in line.copied]
    assert len(spans) > 100 and all(german.is_copied(*span) for span in spans)
    phrases = [pair for pairs in rows("phrases.tsv", "en", "de").values() for pair in pairs]
    assert not sentences & {sentence_key(side) for pair in phrases for side in pair}


def test_the_development_set_reads_backwards(lines: list[german.Line]) -> None:
    back = german.development("de")
    assert [line.source for line in back] == [line.reference for line in lines]
    spans = [(ways, line.reference) for line in back for ways in line.copied]
    assert len(spans) > 200 and all(german.is_copied(*span) for span in spans)
    line = german.Line("It cost 1,500.25 in May.", "", "", [["1.500,25"], ["Mai"]])
    assert line.backwards().copied == [["1,500.25"]]


def test_scores_are_printed_by_category(
    lines: list[german.Line], capsys: pytest.CaptureFixture[str]
) -> None:
    def translate(sources: Sequence[str]) -> list[str]:
        return ["Wie?" if source.endswith("?") else source for source in sources]

    german.print_scores(lines, [line.reference for line in lines])
    german.print_retyped(lines, translate([line.source for line in lines]), translate)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in printed if line.startswith("all")] == [["304", "100.00"]]
    assert printed[-1].split()[:2] == ["lower", "case"]


def test_confidence_finds_a_logistic_function_again() -> None:
    random = np.random.default_rng(1)
    inputs = np.column_stack([np.ones(500), random.normal(size=(500, 2))])
    weights = np.array([-0.5, 1.5, -2.0])
    quality = estimates(Sample(inputs, np.empty(0)), weights)
    assert fit(Sample(inputs, quality)) == pytest.approx(weights, rel=0.01)
