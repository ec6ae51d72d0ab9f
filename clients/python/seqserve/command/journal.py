"""Answers of an unfinished run, on disk, so that the next run need not repeat them.

One process at a time may write a journal. The lock is of the open file and ends with it, also if
the process is killed. On Windows, and on file systems that have no locks, nothing is locked.
"""

import hashlib
import io
import json
import os
import stat
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from seqserve.documents.passage import Link, Translation
from seqserve.errors import NotWritten, OptionError

if sys.platform != "win32":
    import fcntl

_KEY_BYTES = 16
# Neither a link is followed, nor does a pipe block. Windows has no such flags.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class JournalFile:
    """A file of JSON lines: first the options of the run, then its entries, each a list.

    As a context it deletes the file after a run without an error, and keeps it otherwise.
    """

    def __init__(self, path: Path, options: Mapping[str, object]) -> None:
        self._path = path
        self._options = _plain(options)
        self.damaged_line = 0
        """Number of the first line that is not an entry; 0 if all lines are in order."""
        self._file = _opened_alone(path)
        # Behind its last good line this run goes on: the end of a run may have cut one.
        self._kept = 0
        self._has_begun = False

    @classmethod
    def beside(cls, place: Path, options: Mapping[str, object], *, label: str) -> Self:
        """Opens the journal of an output, which has a hidden name in its folder.

        Args:
            label: The output in errors, as :func:`seqserve.files.label_of` names it.
        """
        path = place.with_name(f".{place.name}.seqserve-journal")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            return cls(path, options)
        except BlockingIOError:
            raise OptionError(f"{label}: is being written by another run") from None
        except OSError as error:
            reason = f"its journal {path.name}: {error.strerror}"
            raise OptionError(f"{label}: {reason}") from None

    def entries(self) -> Generator[tuple[int, list[Any]], None, None]:
        """Yields the entries of the file with the numbers of their lines.

        An entry stays when the next one is read; :meth:`append` replaces everything after it.
        """
        self._kept = 0
        self._file.seek(0)
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                if number == 1:
                    options = _options_in(line)
                    if options != self._options:
                        self.damaged_line = 0 if options is not None else 1
                        break
                elif (entry := _entry_in(line)) is not None:
                    yield number, entry
                else:
                    self.damaged_line = number
                    break
                self._kept += len(line)

    def append(self, *entries: Sequence[object]) -> None:
        """Writes entries."""
        lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
        try:
            if not self._has_begun:
                self._has_begun = True
                self._file.truncate(self._kept)
                if not self._kept:
                    lines.insert(0, json.dumps(self._options, sort_keys=True))
            self._write("".join(f"{line}\n" for line in lines))
        except OSError as error:
            raise NotWritten(f"{self._path}: {error.strerror}") from None

    def close(self) -> None:
        """Closes the file, which stays for the next run if there is something in it."""
        if os.fstat(self._file.fileno()).st_size:
            self._file.close()
        else:
            self.remove()

    def remove(self) -> None:
        """Deletes and closes the file: the run is complete."""
        if sys.platform == "win32":
            self._file.close()
        # While it is locked: once it is not, it may be the file of another process.
        self._path.unlink(missing_ok=True)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.remove()
            return
        self.close()
        if kind is KeyboardInterrupt and self._path.exists():
            advice = f"{self._path} keeps what is done; the same command goes on from there"
            print(f"seqserve: {advice}", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        # Data that the system has taken survives the process. A full disk takes a part of it.
        data = text.encode()
        while data:
            data = data[self._file.write(data) :]


class Journal(JournalFile):
    """The translations of a document, found by their texts."""

    def __init__(self, path: Path, options: Mapping[str, object]) -> None:
        """Reads what an earlier run with the same options has left; nothing is written yet."""
        super().__init__(path, options)
        self._known: dict[bytes, Translation] = {}
        for number, entry in self.entries():
            if not self._take(entry):
                self.damaged_line = number
                break

    def get(self, text: str) -> Translation | None:
        """Returns the translation of a text, if an earlier run has made it."""
        return self._known.get(key_of(text))

    def add(self, text: str, translation: Translation) -> None:
        """Notes a translation."""
        self.append([key_of(text).hex(), *translation])

    def _take(self, entry: list[Any]) -> bool:
        try:
            key, text, alignment, warnings = entry
            links = tuple(Link(*map(int, link)) for link in alignment)
            known = Translation(str(text), links, tuple(map(str, warnings)))
            self._known[bytes.fromhex(key)] = known
        except (ValueError, TypeError, OverflowError):
            return False
        return True


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(options, default=str))
    return {name: value for name, value in plain.items() if value is not None}


def _options_in(line: bytes) -> dict[str, Any] | None:
    try:
        return _plain(json.loads(line))
    except (ValueError, AttributeError, RecursionError):
        return None


def _entry_in(line: bytes) -> list[Any] | None:
    with suppress(ValueError, RecursionError):
        return entry if isinstance(entry := json.loads(line), list) else None
    return None


def _opened_alone(path: Path) -> io.FileIO:
    while True:
        number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
        file = io.FileIO(number, "a+")
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise OSError(0, "Not a regular file")
            _lock(number)
            if _is_at(path, number):
                return file
        except BaseException:
            file.close()
            raise
        # The process that had it before has deleted it meanwhile.
        file.close()


def _lock(number: int) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass


def _is_at(path: Path, number: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(number))
    return False


def key_of(text: str) -> bytes:
    """Returns the key of a text in a journal."""
    # JSON can write half a character, which no server translates.
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=_KEY_BYTES).digest()
