"""Pictures of trainings, from their TensorBoard logs."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

from seqserve.errors import OptionError
from seqserve_plot.picture import grid

Curve = Sequence[tuple[int, float]]
"""Steps and the value at each."""

_EVERY_POINT = 0
_PANEL = (5.4, 2.3)
_PANELS = {
    "loss": {"train/loss": "training, smoothed labels", "valid/loss": "validation"},
    "validation": {"valid/chrf": "chrF", "valid/bleu": "BLEU"},
    "learning rate": {"train/learning_rate": ""},
}
"""The names of the log's numbers, by panel, and their names in the legend."""


def draw(runs: Sequence[Path]) -> Figure:
    """Draws loss, validation scores and learning rate of one run or of several."""
    # One below the other, so that labels are legible on a phone.
    figure, rows = grid(len(_PANELS), 1, cell=_PANEL)
    axes = [row[0] for row in rows]
    for run in runs:
        curves = read_curves(run)
        prefix = f"{run.name} " if len(runs) > 1 else ""
        for panel, names in zip(axes, _PANELS.values(), strict=True):
            for name, label in names.items():
                _draw_curve(panel, curves.get(name, []), f"{prefix}{label}".strip())
    for panel, title in zip(axes, _PANELS, strict=True):
        panel.set(title=title, xlabel="step")
        panel.grid(alpha=0.3)
        if any(line.get_label()[:1] != "_" for line in panel.lines):  # type: ignore[index]
            panel.legend(fontsize="x-small")
    return figure


def read_curves(run: Path) -> dict[str, Curve]:
    """Reads every number that a training logged, by name; the steps of an interrupted one once."""
    log = run / "log"
    if not any(log.glob("events.*")):
        raise OptionError(f"{run}: has no log of a training; `seqserve train` writes one to {log}")
    events = EventAccumulator(str(log), size_guidance={SCALARS: _EVERY_POINT}).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()[SCALARS]
    }


def _draw_curve(axes: Axes, curve: Curve, label: str) -> None:
    if curve:
        steps, values = zip(*curve, strict=True)
        marker = "" if len(curve) > 50 else "."
        axes.plot(steps, values, marker=marker, linewidth=1, label=label or None)
