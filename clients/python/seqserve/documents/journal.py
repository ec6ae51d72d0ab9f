"""Translations of a run that is under way, on disk, so that the next run need not repeat them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from seqserve.documents.passage import Link, Translation

_KEY_BYTES = 16


class Journal:
    """A file of JSON lines: first what the run was asked, then a line for each translation."""

    def __init__(self, path: Path, asked: dict[str, object]) -> None:
        """Reads what an earlier run with the same options has left, and goes on behind it.

        Args:
            path: The file, which may exist.
            asked: The options of the run; translations of other ones are of no use.

        Raises:
            OSError: The file cannot be read or written.
        """
        self._path = path
        self._found: dict[bytes, Translation] = {}
        head = json.dumps(asked, sort_keys=True, default=str)
        kept = self._read(head)
        self._file = path.open("r+b" if kept else "wb")
        if kept:
            # Behind the last whole line: the end of a run may have cut one.
            self._file.truncate(kept)
            self._file.seek(kept)
        else:
            self._write(head)

    def __len__(self) -> int:
        """Counts the translations that are known."""
        return len(self._found)

    def get(self, text: str) -> Translation | None:
        """Returns the translation of a text, if an earlier run has made it."""
        return self._found.get(_key(text))

    def add(self, text: str, translation: Translation) -> None:
        """Notes a translation."""
        self._write(json.dumps([_key(text).hex(), *translation], ensure_ascii=False))

    def close(self) -> None:
        """Closes the file, which stays for the next run."""
        self._file.close()

    def remove(self) -> None:
        """Closes and deletes the file: the run is complete."""
        self.close()
        self._path.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n".encode())
        # What the system has survives the process.
        self._file.flush()

    def _read(self, head: str) -> int:
        """Reads the file; returns how many bytes of it are to be kept."""
        if not self._path.exists():
            return 0
        kept = 0
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines):
                if not line.endswith(b"\n"):
                    break
                if number == 0:
                    if line.rstrip(b"\n") != head.encode():
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
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()
