"""The sub-commands ``train`` and ``evaluate``: they read their options before torch is loaded.

So ``--help`` works with the client alone, and OpenMP's wait policy is set in time.
"""

from __future__ import annotations

import os


def set_passive_wait() -> None:
    """Sets OpenMP's wait policy, unless it is set; call it before torch is loaded.

    By default torch's threads spin while they wait for each other. On a machine with other work,
    the thread that the others wait for then finds no core, and a training on two threads makes a
    tenth of its steps.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
