"""Draws the pictures of the documentation again: ``make figures``, two minutes on one core.

All come from the code that they explain. ``flow.svg`` and ``processes.svg`` show what is not
computed; they are written by hand.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from seqserve.command.analysis import AttentionOptions, map_of
from seqserve.command.main import main as seqserve
from seqserve_plot.attention import of_artifact

DOCS = Path(__file__).parent
INSIDE = DOCS / "inside"
ARTIFACT = DOCS.parent / "models/en-de/5"
RECIPE = DOCS.parent / "model/configs/numbers.toml"
SENTENCE = "The coffee tastes good."
KOREAN = DOCS.parent / "models/ko-en/3"
KOREAN_SENTENCE, KOREAN_TARGET = "영화가 재미있다", "This movie is fun."
LONGER = "If I had more time, I would learn to play the piano."

PLOTS = {
    "sinusoidal": "positions sinusoidal",
    "marian": "positions marian",
    "relative": "positions relative",
    "t5": "positions t5",
    "rotary": "positions rotary",
    "alibi": "positions alibi",
    "masks": "masks",
    "schedule": f"schedule {ARTIFACT} --file {INSIDE}/sentences.txt",
}
"""The arguments of ``seqserve plot``, by picture."""


def run(*arguments: str | Path) -> None:
    """Runs a command of seqserve; a failure ends this program."""
    if status := seqserve([str(argument) for argument in arguments]):
        sys.exit(status)


def main() -> None:
    """Draws all pictures."""
    draw_plots()
    draw_training()


def draw_plots() -> None:
    """Draws those that need no training."""
    for name, arguments in PLOTS.items():
        run("plot", *arguments.split(), "--out", INSIDE / f"{name}.svg")
    for kind in ("encoder", "decoder", "cross"):
        out = INSIDE / f"{kind}.svg"
        run("plot", "attention", SENTENCE, "--artifact", ARTIFACT, "--kind", kind, "--out", out)
    draw_map(ARTIFACT, LONGER, DOCS / "attention.svg")
    draw_map(KOREAN, KOREAN_SENTENCE, INSIDE / "korean.svg", KOREAN_TARGET)


def draw_map(artifact: Path, source: str, out: Path, target: str | None = None) -> None:
    """Draws which words of a source its translation looked at, as ``seqserve attention --svg``."""
    options = AttentionOptions(source=source, target_text=target, svg=True)
    lines = map_of(of_artifact(artifact, source, target), options)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw_training() -> None:
    """Trains the model of numbers, as its recipe says, and draws its curves."""
    with tempfile.TemporaryDirectory() as folder:
        data, trained = Path(folder, "numbers.tsv"), Path(folder, "numbers")
        recipe = Path(folder, RECIPE.name)
        recipe.write_text(
            RECIPE.read_text(encoding="utf-8").replace("data/numbers.tsv", str(data)),
            encoding="utf-8",
        )
        run("prepare", "--numbers", "20000", "--out", data)
        run("train", recipe, "--threads", "1", "--out", trained)
        run("plot", "training", trained, "--out", INSIDE / "training.svg")


if __name__ == "__main__":
    main()
