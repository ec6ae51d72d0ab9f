"""The commit of the code that runs, for reports and manifests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def current_commit() -> str:
    """Gives the commit of the clone that this code runs from; "" outside a clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return result.stdout.strip()
