"""The learning rate over the course of a training.

Source: Vaswani et al. 2017, §5.3: linear warm-up, then the inverse square root of the step. An
optional linear decay to zero over the last steps lets a training of fixed length end well.
"""

from __future__ import annotations

import math


def learning_rate(
    step: int, *, peak: float, warmup_steps: int, decay_steps: int, max_steps: int
) -> float:
    """Gives the learning rate of a step, counted from 1 to ``max_steps``.

    It is ``peak`` at the end of the warm-up; ``decay_steps`` of 0 means no decay.
    """
    warmup = max(1, warmup_steps)
    rate = peak * min(step / warmup, math.sqrt(warmup / step))
    if decay_steps:
        rate *= min(1.0, max(0.0, max_steps + 1 - step) / decay_steps)
    return rate
