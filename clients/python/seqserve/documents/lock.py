"""A file that one process at a time may write.

The lock is of the open file and ends with it, also if the process is killed. On Windows, and on
file systems that have no locks, nothing is locked.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import BufferedRandom
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def opened_alone(path: Path) -> BufferedRandom:
    """Opens a file to read it and to write at its end, and locks it.

    Raises:
        BlockingIOError: Another process has locked it.
        OSError: It cannot be opened.
    """
    while True:
        file = path.open("a+b")
        try:
            _lock(file)
            if _is_there(path, file):
                return file
        except BaseException:
            file.close()
            raise
        # The process that had it before has deleted it meanwhile.
        file.close()


def removed(path: Path, file: BufferedRandom) -> None:
    """Deletes and closes a file that is locked."""
    if sys.platform == "win32":
        file.close()
    # While it is locked: once it is not, it may be that of another process.
    path.unlink(missing_ok=True)
    file.close()


def _lock(file: BufferedRandom) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass


def _is_there(path: Path, file: BufferedRandom) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False
