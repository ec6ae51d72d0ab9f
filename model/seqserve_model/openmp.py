"""Lets torch's threads sleep while they wait for each other, so that other work gets their core.

By default they spin. On a machine with other work, the thread that the others wait for then finds
no core, and a training on two threads makes a tenth of its steps.
"""

from __future__ import annotations

import os


def set_passive_wait() -> None:
    """Sets OpenMP's wait policy, unless it is set; call it before torch is loaded."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
