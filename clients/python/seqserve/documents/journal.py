"""Translations of a run that is under way, on disk, so that the next run need not repeat them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from seqserve.documents.lock import opened_alone, removed
from seqserve.documents.passage import Link, Translation

_KEY_BYTES = 16


class Journal:
    """A file of JSON lines: first what the run was asked, then a line for each translation."""

    def __init__(self, path: Path, asked: dict[str, object]) -> None:
        """Reads what an earlier run with the same options has left; nothing is written yet.

        Args:
            path: The file, which may exist.
            asked: The options of the run; translations of other ones are of no use.

        Raises:
            BlockingIOError: Another run writes it.
            OSError: The file cannot be read or written.
        """
        self._path = path
        self._head = json.dumps(asked, sort_keys=True, default=str)
        self._found: dict[bytes, Translation] = {}
        self._file = opened_alone(path)
        # Behind its last whole line this run goes on: the end of a run may have cut one.
        self._kept = self._read()
        self._has_begun = False

    def __len__(self) -> int:
        """Counts the translations that are known."""
        return len(self._found)

    def get(self, text: str) -> Translation | None:
        """Returns the translation of a text, if an earlier run has made it."""
        return self._found.get(_key(text))

    def add(self, text: str, translation: Translation) -> None:
        """Notes a translation."""
        if not self._has_begun:
            self._begin()
        self._write(json.dumps([_key(text).hex(), *translation], ensure_ascii=False))

    def close(self) -> None:
        """Closes the file, which stays for the next run if there is something in it."""
        if os.fstat(self._file.fileno()).st_size:
            self._file.close()
        else:
            self.remove()

    def remove(self) -> None:
        """Closes and deletes the file: the run is complete."""
        removed(self._path, self._file)

    def _begin(self) -> None:
        self._has_begun = True
        self._file.truncate(self._kept)
        if not self._kept:
            self._write(self._head)

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n".encode())
        # What the system has survives the process.
        self._file.flush()

    def _read(self) -> int:
        """Reads the file; returns how many bytes of it are to be kept."""
        kept = 0
        self._file.seek(0)
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):
                break
            if number == 0:
                if line.rstrip(b"\n") != self._head.encode():
                    return 0
            elif not self._take(line):
                break
            kept += len(line)
        return kept

    def _take(self, line: bytes) -> bool:
        try:
            key, text, alignment = json.loads(line)
            links = tuple(Link(*map(int, link)) for link in alignment)
            self._found[bytes.fromhex(key)] = Translation(str(text), links)
        except (ValueError, TypeError):
            return False
        return True


def _key(text: str) -> bytes:
    # JSON can write half a character, which no server translates.
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=_KEY_BYTES).digest()
