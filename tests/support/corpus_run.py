"""A run of ``seqserve corpus`` over a file, with the shipped model."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from .process import MODELS, PATIENCE_S, until


class CorpusRun:
    """The command; what it says is read as it comes."""

    def __init__(
        self, corpus: Path, out: Path, *options: str, program: Sequence[str] = ("seqserve",)
    ) -> None:
        flags = ("--model-repository", str(MODELS), "--model", "en-de/4", "--segmentation", "none")
        command = [sys.executable, "-m", *program, "corpus", str(corpus), str(out)]
        self.process = subprocess.Popen(
            [*command, *flags, *options], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._journal = out.with_name(f".{out.name}.seqserve-journal")

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self.said += lines

    @property
    def answered(self) -> int:
        return self._journal.read_bytes().count(b"\n") - 1 if self._journal.exists() else 0

    def wait_for(self, least: int) -> None:
        """Waits until so many texts are answered, while it runs."""
        until(lambda: self.answered >= least or self.process.poll() is not None)
        assert self.process.poll() is None, self.said

    def end(self) -> int:
        """Waits for its end and returns its exit status."""
        status = self.process.wait(2 * PATIENCE_S)
        self._reader.join()
        return status
