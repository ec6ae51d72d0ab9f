"""Files that were translated, until their clients fetch them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from seqserve_gateway.failure import Failure
from seqserve_gateway.translation.fields import File


class Downloads:
    """Files in memory, of bounded size and age; whoever knows the key of one may read it."""

    def __init__(
        self,
        max_bytes: int = 64 << 20,
        kept_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with none.

        Args:
            max_bytes: Size of all files; the oldest make room.
            kept_s: How long a file can be fetched.
            clock: Seconds, from any origin.
        """
        self._max_bytes, self._kept_s, self._clock = max_bytes, kept_s, clock
        self._files: dict[str, tuple[float, File]] = {}

    def add(self, file: File) -> str:
        """Keeps a file; returns its key, which nobody can guess."""
        key = secrets.token_urlsafe(16)
        self._files[key] = (self._clock(), file)
        self._shrink()
        return key

    def get(self, key: str) -> File:
        """Returns a file.

        Raises:
            Failure: There is none of this key, or no longer.
        """
        self._shrink()
        if key not in self._files:
            raise Failure("NOT_FOUND", "there is no such file, or no longer; translate it again")
        return self._files[key][1]

    def _shrink(self) -> None:
        size = sum(len(file.content) for _, file in self._files.values())
        for key, (added_s, file) in list(self._files.items()):
            if size <= self._max_bytes and self._clock() - added_s <= self._kept_s:
                break
            size -= len(file.content)
            del self._files[key]
