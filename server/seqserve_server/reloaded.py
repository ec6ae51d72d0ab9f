"""What is read from files that change while the server runs: certificates, tokens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from seqserve.errors import OptionError
from seqserve_server import logs

T = TypeVar("T")


class Reloaded(Generic[T]):
    """Reads files again once they have changed; while they are broken, what they held stays.

    Whoever asks looks at the files, so there is no thread that watches. May be shared by threads.
    """

    def __init__(self, what: str, paths: Sequence[Path], read: Callable[[], T]) -> None:
        """Reads for the first time.

        Args:
            what: How the log names it.
            paths: The files.
            read: Reads them; raises OptionError where they are broken.

        Raises:
            OptionError: They are broken.
        """
        self._what = what
        self._paths = paths
        self._read = read
        self._lock = threading.Lock()
        self._stamps = self._now()
        self._value = read()

    @property
    def value(self) -> T:
        """What the files hold, or held when they were last sound."""
        if self._now() != self._stamps:
            with self._lock:
                self._reload()
        return self._value

    def _reload(self) -> None:
        stamps = self._now()
        if stamps == self._stamps:
            # Another thread was first.
            return
        try:
            value = self._read()
        except OptionError as error:
            self._stamps = stamps
            logs.event(f"{self._what} kept", {"reason": str(error)}, logging.ERROR)
            return
        # Where they changed while they were read, the parts may not be of one time.
        if self._now() == stamps:
            self._stamps, self._value = stamps, value
            logs.event(f"{self._what} read again", {"files": ", ".join(map(str, self._paths))})

    def _now(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Tells one content of a file from another; None where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
