"""Shows a training while it runs: a bar on a terminal or lines in a log, and TensorBoard."""

import sys
import time
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

_LINE_EVERY_S = 30.0
_SCALARS_EVERY_STEPS = 10


class Progress:
    """The display of one training."""

    def __init__(self, log: Path, *, step: int, max_steps: int) -> None:
        """Begins at a step; scalars that an interrupted training logged past it are dropped."""
        self._writer = SummaryWriter(str(log), purge_step=step + 1)
        self._terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=max_steps, initial=step, unit="step", disable=not self._terminal, smoothing=0.05
        )
        self._max_steps = max_steps
        self._first_step = step
        self._begun = self._line_at = time.monotonic()
        self._tokens = self._line_tokens = 0
        self._loss = 0.0

    def step(self, step: int, *, loss: float, rate: float, target_tokens: int) -> None:
        """Shows a step, and the tokens of those since the last one shown."""
        now = time.monotonic()
        # Smoothed over about fifty steps, so that one odd batch does not look like a trend.
        self._loss = loss if not self._loss else 0.98 * self._loss + 0.02 * loss
        self._tokens += target_tokens
        speed = (self._tokens - self._line_tokens) / max(1e-9, now - self._line_at)
        if step % _SCALARS_EVERY_STEPS == 0:
            self.scalars(step, {"train/loss": loss, "train/learning_rate": rate})
        if self._terminal:
            self._bar.set_postfix_str(
                f"loss {self._loss:.3f}, {speed:,.0f} target tokens/s, lr {rate:.2e}", refresh=False
            )
            self._bar.update(step - self._bar.n)
        if now - self._line_at < _LINE_EVERY_S:
            return
        self.scalars(step, {"train/target_tokens_per_s": speed})
        if not self._terminal:
            left_s = (now - self._begun) / (step - self._first_step) * (self._max_steps - step)
            self.line(
                f"step {step:,}/{self._max_steps:,}  loss {self._loss:.3f}  "
                f"{speed:,.0f} target tokens/s  lr {rate:.2e}  {_clock(left_s)} left"
            )
        self._line_at, self._line_tokens = now, self._tokens

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Logs numbers to TensorBoard."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def line(self, text: str) -> None:
        """Prints a line above the bar."""
        tqdm.write(text, file=sys.stderr)
        sys.stderr.flush()

    def close(self) -> None:
        """Ends the display."""
        self._bar.close()
        self._writer.close()


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d} h" if minutes >= 60 else f"{minutes} min"
