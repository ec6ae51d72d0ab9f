"""``seqserve import`` in a separate process, with or without its bound on what rounding loses.

Random weights lose more by rounding than an import allows: ``python -m bench.import_checkpoint``
is the command without that refusal.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

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

    Args:
        checkpoint: Its folder.
        repository: Folder of models.
        precision: Of the artifact, and its name.
        sentences: Number of sentences of the proof. texts: The sentences of the proof; if empty,
        the model writes them.
        is_checked: Whether an artifact that differs too much is an error.
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
    began_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the import of {checkpoint} ended with {process.returncode}")
    return Import(
        artifact=repository / precision / "1",
        seconds=time.perf_counter() - began_s,
        # Linux counts in kibibytes.
        peak_bytes=usage.ru_maxrss * 1024,
    )


if __name__ == "__main__":
    with patch.object(pipeline, "check_tolerance"):
        sys.exit(main())
