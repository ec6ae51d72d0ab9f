"""A job that translates the lines of a file with ``seqserve generate``."""

import os
import subprocess
import sys
from pathlib import Path

from .process import PATIENCE_S, own_environment


class Job:
    """A run of the command; what it writes goes to files in its folder."""

    def __init__(self, target: str, folder: Path, *options: str, lines: Path | None = None) -> None:
        """Starts it; ``lines`` are its standard input."""
        folder.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        command = [sys.executable, "-m", "seqserve", "generate", "--target", target, *options]
        with (
            open(lines or os.devnull, "rb") as stdin,
            self._out.open("wb") as out,
            self._err.open("wb") as err,
        ):
            self._process = subprocess.Popen(
                command, stdin=stdin, stdout=out, stderr=err, env=own_environment()
            )

    @property
    def answers(self) -> list[str]:
        return self._out.read_text(encoding="utf-8").split("\n")[:-1]

    @property
    def reports(self) -> list[str]:
        return self._err.read_text(encoding="utf-8").splitlines()

    def runs(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        try:
            return self._process.wait(10 * PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
