"""The choice among the weights of a training run."""

from __future__ import annotations

from enum import Enum


class Weights(Enum):
    """Which weights of a run to take."""

    RESULT = "result"
    """The better of the two below; while the training still runs, the best so far."""
    AVERAGED = "averaged"
    BEST = "best"
    LAST = "last"


WEIGHTS_HELP = (
    "Which weights of the run: averaged is the mean of its last checkpoints, best had the best"
    " validation, last is the last checkpoint; result is what the training chose of the first two"
    " at its end, and before that best, or else last."
)
"""Help of the option ``--weights``."""
