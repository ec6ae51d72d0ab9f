"""``seqserve import`` in a separate process, with or without its bound on what rounding loses.

Random weights lose more by rounding than an import allows: ``python -m bench.import_checkpoint``
is the command without that refusal.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from bench.drivers.subprocess_driver import timed
from seqserve_export import pipeline
from seqserve_import.command import main


class Import(NamedTuple):
    """An artifact and what its import took."""

    artifact: Path
    seconds: float
    peak_bytes: int
    """Resident."""


def run(
    checkpoint: Path,
    repository: Path,
    precision: str,
    *,
    sentences: int,
    texts: Sequence[str] = (),
    is_checked: bool = True,
) -> Import:
    """Imports a checkpoint into ``repository/<precision>/1``.

    It is proved by some sentences; without texts the model writes them. ``is_checked`` makes an
    artifact that differs too much an error.
    """
    module = "seqserve_import.command" if is_checked else "bench.import_checkpoint"
    command = [
        *(sys.executable, "-m", module, str(checkpoint)),
        *("--name", precision, "--precision", precision),
        *("--model-repository", str(repository), "--sentences", str(sentences)),
    ]
    if texts:
        data = repository / "sentences.txt"
        data.write_text("\n".join(texts), encoding="utf-8")
        command += ["--data", str(data)]
    seconds, usage = timed(f"the import of {checkpoint}", command)
    # Linux counts in kibibytes.
    return Import(repository / precision / "1", seconds, usage.ru_maxrss * 1024)


if __name__ == "__main__":
    with patch.object(pipeline, "check_tolerance"):
        sys.exit(main())
