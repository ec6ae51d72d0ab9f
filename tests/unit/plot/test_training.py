from pathlib import Path

import pytest
from tests.unit.plot.pictures import labels

from seqserve.errors import OptionError
from seqserve_model.progress import Progress
from seqserve_plot.training import draw, read_curves

pytestmark = pytest.mark.slow


def train(run: Path, steps: range, loss: float) -> Path:
    progress = Progress(run / "log", step=steps.start - 1, max_steps=100)
    for step in steps:
        progress.step(step, loss=loss, rate=step / 1000, target_tokens=1)
        if step % 20 == 0:
            progress.scalars(step, {"valid/loss": loss, "valid/chrf": 50.0, "valid/bleu": 20.0})
    progress.close()
    return run


def test_curves_are_what_the_training_logged(tmp_path: Path) -> None:
    curves = read_curves(train(tmp_path / "run", range(1, 41), loss=2.0))
    assert curves["train/loss"] == [(step, 2.0) for step in (10, 20, 30, 40)]
    assert curves["valid/chrf"] == [(20, 50.0), (40, 50.0)]
    assert [value for _, value in curves["train/learning_rate"]] == pytest.approx(
        [0.01, 0.02, 0.03, 0.04]
    )


def test_steps_that_were_repeated_are_drawn_once(tmp_path: Path) -> None:
    train(tmp_path, range(1, 41), loss=2.0)
    # Resumed from the checkpoint of step 20.
    curves = read_curves(train(tmp_path, range(21, 61), loss=1.0))
    assert [step for step, _ in curves["train/loss"]] == [10, 20, 30, 40, 50, 60]
    assert dict(curves["train/loss"])[30] == 1.0


def test_several_runs_are_told_apart(tmp_path: Path) -> None:
    runs = [train(tmp_path / name, range(1, 21), loss=1.0) for name in ("a", "b")]
    named = labels(draw(runs))
    assert {"a validation", "b validation", "a chrF", "b chrF", "a", "b"} <= set(named)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="has no log of a training"):
        draw([tmp_path])
