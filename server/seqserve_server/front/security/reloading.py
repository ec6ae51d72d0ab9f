"""Reloads files that change while the server runs: certificates and tokens."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from seqserve.errors import OptionError
from seqserve_server.process import logs

# A broken file may become readable without any change to it: permissions of its folder, a disk.
_RETRY_INTERVAL_S = 1.0

T = TypeVar("T")
_Stamp: TypeAlias = tuple[int, int, int, int] | None


class Reload(NamedTuple):
    """The outcome of the last reload; the first read counts as one."""

    succeeded: bool
    """False while the files are broken and their last valid value is used."""
    success_s: float
    """Time, in seconds since 1970, at which the value in use was read."""


class Reloaded(Generic[T]):
    """A value read from files, reloaded when they change; broken files leave the last valid value.

    Each access checks the files, so no thread has to watch them. Threads may share it.
    """

    def __init__(
        self,
        what: str,
        files: Mapping[str, Path],
        read: Callable[[], T],
        retry_interval_s: float = _RETRY_INTERVAL_S,
    ) -> None:
        """Reads the files, by the options that name them, for the first time.

        ``what`` is a name for the log. ``read`` raises OptionError if the files are broken; these
        are read again at an interval.
        """
        self._what = what
        self._files = files
        self._read = read
        self._retry_interval_s = retry_interval_s
        self._lock = threading.Lock()
        self._stamps = self._current()
        self._value = self._read_plain()
        self._success_s = time.time()
        self._error: tuple[list[_Stamp], str] | None = None
        """Files and reason of the last error that was logged; None if the files are valid."""
        self._retry_at_s = 0.0

    @property
    def value(self) -> T:
        """The value of the files now, or when they were last valid."""
        if self._is_due(self._current()):
            with self._lock:
                self._reload()
        return self._value

    @property
    def last(self) -> Reload:
        """The last reload, which takes place now if the files have changed."""
        _ = self.value
        return Reload(succeeded=self._error is None, success_s=self._success_s)

    def _is_due(self, stamps: list[_Stamp]) -> bool:
        if stamps != self._stamps:
            return True
        return self._error is not None and time.monotonic() >= self._retry_at_s

    def _reload(self) -> None:
        stamps = self._current()
        if not self._is_due(stamps):
            # Another thread has reloaded them.
            return
        try:
            value = self._read_plain()
        except OptionError as error:
            kept = stamps, str(error)
            if kept != self._error:
                logs.event(f"{self._what} kept", {"reason": str(error)}, logging.ERROR)
            self._stamps, self._error = stamps, kept
            self._retry_at_s = time.monotonic() + self._retry_interval_s
            return
        # Files that changed while they were read may not belong together; the next access retries.
        if self._current() == stamps:
            self._stamps, self._value, self._error = stamps, value, None
            self._success_s = time.time()
            files = ", ".join(map(str, self._files.values()))
            logs.event(f"{self._what} read again", {"files": files})

    def _read_plain(self) -> T:
        for option, path in self._files.items():
            # Reading a pipe would block, and with it every call.
            if os.path.exists(path) and not os.path.isfile(path):
                raise OptionError(f"{option}: {path} is not a regular file")
        return self._read()

    def _current(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._files.values()]


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
