"""How torch's threads wait for each other: asleep, so that their core is free for what else runs.

By default they spin for a while. On a machine that does other work too, the one that is waited for
then finds no core, and a training on two threads makes a tenth of its steps.
"""

from __future__ import annotations

import os


def let_threads_sleep() -> None:
    """Is to be called before torch is loaded, when OpenMP reads it; what is set already stands."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
