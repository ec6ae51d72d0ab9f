import math
from pathlib import Path
from typing import Any

import pytest

from seqserve.errors import OptionError
from seqserve_model.recipe import Metric, OptimizerRecipe, Precision, Recipe

ROOT = Path(__file__).parents[3]
CONFIGS = [*ROOT.glob("model/configs/*.toml"), *ROOT.glob("recipes/*/*-*.toml")]
LEAST: dict[str, Any] = {"data": {"path": "a.tsv"}}


@pytest.mark.parametrize("path", sorted(CONFIGS), ids=lambda path: path.stem)
def test_shipped_recipes_are_sound(path: Path) -> None:
    recipe = Recipe.load(path)
    assert recipe.vocabulary.size % 128 == 0
    assert recipe.optimizer.decay_steps < recipe.training.max_steps
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_there_are_shipped_recipes() -> None:
    assert {path.stem for path in CONFIGS} >= {"en-de", "numbers", "en-de-wide", "ko-en"}


def test_keys_are_read() -> None:
    training = {"precision": "bf16", "metric": "loss", "max_steps": 7}
    recipe = Recipe.from_dict({**LEAST, "training": training, "optimizer": {"clip_norm": 2}})
    assert recipe.training.precision is Precision.BF16
    assert recipe.training.metric is Metric.LOSS
    assert recipe.training.max_steps == 7
    assert recipe.optimizer.clip_norm == 2.0
    assert recipe.data.target_column == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, r"data\.path is missing"),
        ({"data": {"path": "a", "files": [{"path": "b"}]}}, r"path and data\.files exclude"),
        ({"data": {"files": []}}, r"data\.path is missing"),
        ({"data": {"files": {"path": "b"}}}, r"write \[\[data\.files\]\]"),
        ({"data": {"files": ["b"]}}, r"write \[\[data\.files\]\]"),
        ({"data": {"files": [{"path": "a"}, {"weight": 2}]}}, r"data\.files\[1\]\.path is missing"),
        *(
            ({"data": {"files": [{"path": "a", "weight": weight}]}}, rf"\[0\]\.weight: {reason}")
            for weight, reason in (
                (0, r"0\.0 is less"),
                (math.inf, "inf is more than 1000"),
                (math.nan, "nan is more than 1000"),
            )
        ),
        ({"data": {"files": [{"pth": "a"}]}}, r"data\.files\[0\]\.pth is not known"),
        ({"optimiser": {}}, r"\[optimiser\] is not known"),
        ({"data": 3}, r"data is not a section"),
        ({"data": {"pth": "a"}}, r"data\.pth is not known; known are path"),
        ({"data": {"path": 3}}, r"data\.path: 3 is not of type str"),
        ({"training": {"max_steps": 1.5}}, r"training\.max_steps: 1\.5 is not of type int"),
        ({"training": {"max_steps": True}}, r"training\.max_steps: True is not of type int"),
        ({"training": {"max_steps": 0}}, r"training\.max_steps: 0 is less than 1"),
        ({"training": {"metric": "ter"}}, r"training\.metric: 'ter' is not one of chrf, bleu"),
        ({"optimizer": {"beta1": "x"}}, r"optimizer\.beta1: 'x' is not of type float"),
        ({"model": {"widht": 3}}, r"model\.widht is not known"),
        ({"model": {"width": 3.5}}, r"model\.width"),
        ({"model": {"vocabulary_size": 9}}, r"model\.vocabulary_size is set by the vocabulary"),
    ],
)
def test_a_wrong_key_is_named(content: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Recipe.from_dict(content)


@pytest.mark.parametrize("content", ["[data", "[data]\npath = 3", None])
def test_a_wrong_file_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(OptionError, match=r"mine\.toml: "):
        Recipe.load(path)


def test_several_files_are_read_with_their_weights() -> None:
    files = [{"path": "a.tsv"}, {"path": "b.tsv", "weight": 2}]
    data = {"files": files, "validation_path": "valid.tsv"}
    recipe = Recipe.from_dict({"data": data})
    assert [(file.path, file.weight) for file in recipe.data.training_files] == [
        ("a.tsv", 1.0),
        ("b.tsv", 2.0),
    ]
    assert recipe.data.all_paths == ["a.tsv", "b.tsv", "valid.tsv"]
    assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize(
    ("step", "expected"), [(1, 0.01), (50, 0.5), (100, 1.0), (400, 0.5), (900, 1 / 3)]
)
def test_warmup_then_inverse_square_root(step: int, expected: float) -> None:
    optimizer = OptimizerRecipe(learning_rate=1.0, warmup_steps=100, decay_steps=0)
    assert optimizer.rate(step, max_steps=1_000) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("step", "share"), [(80, 1.0), (81, 1.0), (91, 0.5), (100, 0.05), (101, 0.0), (200, 0.0)]
)
def test_linear_decay_over_the_last_steps(step: int, share: float) -> None:
    def rate(decay_steps: int) -> float:
        optimizer = OptimizerRecipe(warmup_steps=10, decay_steps=decay_steps)
        return optimizer.rate(step, max_steps=100)

    assert rate(20) == pytest.approx(share * rate(0))


def test_no_warmup_begins_at_the_peak() -> None:
    assert OptimizerRecipe(learning_rate=0.3, warmup_steps=0).rate(1, max_steps=9) == 0.3
