"""What is read from files that change while the server runs: certificates, tokens."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from seqserve.errors import OptionError
from seqserve_server.contract import logs

# Why files cannot be read may pass without a trace in them: a right to their folder, a disk.
_AGAIN_S = 1.0

T = TypeVar("T")
_Stamp: TypeAlias = tuple[int, int, int, int] | None


class Reloaded(Generic[T]):
    """Reads files again once they have changed; while they are broken, what they held stays.

    Whoever asks looks at the files, so there is no thread that watches. May be shared by threads.
    """

    def __init__(self, what: str, files: Mapping[str, Path], read: Callable[[], T]) -> None:
        """Reads for the first time.

        Args:
            what: How the log names it.
            files: By the options that name them.
            read: Reads them; raises OptionError where they are broken.

        Raises:
            OptionError: They are broken.
        """
        self._what = what
        self._files = files
        self._read = read
        self._lock = threading.Lock()
        self._stamps = self._now()
        self._value = self._read_plain()
        self._told: tuple[list[_Stamp], str] | None = None
        """Of what is broken, the files and the reason that the log has; None where all is well."""
        self._again_s = 0.0

    @property
    def value(self) -> T:
        """What the files hold, or held when they were last sound."""
        if self._is_due(self._now()):
            with self._lock:
                self._reload()
        return self._value

    def _is_due(self, stamps: list[_Stamp]) -> bool:
        if stamps != self._stamps:
            return True
        return self._told is not None and time.monotonic() >= self._again_s

    def _reload(self) -> None:
        stamps = self._now()
        if not self._is_due(stamps):
            # Another thread was first.
            return
        try:
            value = self._read_plain()
        except OptionError as error:
            self._keep(stamps, str(error))
            return
        # Where they changed while they were read, the parts may not be of one time.
        if self._now() == stamps:
            self._stamps, self._value, self._told = stamps, value, None
            files = ", ".join(map(str, self._files.values()))
            logs.event(f"{self._what} read again", {"files": files})

    def _keep(self, stamps: list[_Stamp], reason: str) -> None:
        told = stamps, reason
        if told != self._told:
            logs.event(f"{self._what} kept", {"reason": reason}, logging.ERROR)
        self._stamps, self._told = stamps, told
        self._again_s = time.monotonic() + _AGAIN_S

    def _read_plain(self) -> T:
        for option, path in self._files.items():
            # A pipe would be waited for, and everybody with it.
            if os.path.exists(path) and not os.path.isfile(path):
                raise OptionError(f"{option}: {path} is no plain file")
        return self._read()

    def _now(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._files.values()]


def _stamp(path: Path) -> _Stamp:
    """Tells one content of a file, and who may read it, from another; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size
