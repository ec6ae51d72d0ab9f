"""Files that are written whole or not at all.

A file is written in the folder of its place, under a hidden name, and moved there when
it is complete. Until then, and after any error, what was there before stays as it is.
"""

import io
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from seqserve.errors import NotWritten, OptionError


@contextmanager
def written_whole(
    path: Path,
    mode: Literal["w", "wb"] = "wb",
    *,
    encoding: str = "utf-8",
    newline: str | None = None,
    option: str = "--out",
    instead: str = "",
) -> Generator[IO[Any], None, None]:
    """Yields a new file, which takes the place of ``path`` when the block ends without an error.

    A link stays: the file that it leads to is replaced, and its permissions are kept. Folders are
    made. The bytes are on the disk before the file is in its place::

        with written_whole(folder / "weights.bin") as file:
            file.write(data)
        with written_whole(out, "w", newline="") as file:
            print(text, file=file)

    Args:
        option: Option at the beginning of error messages; empty if no option names the path.
        instead: What to do if the path must not be replaced, for the error.

    Raises:
        OptionError: The path is not a regular file, or no file can be made there.
        NotWritten: A write failed, as on a full disk.
    """
    place = replaceable(path, option=option, instead=instead)
    draft = place.with_name(f".seqserve-{secrets.token_hex(8)}.part")
    label = label_of(path, option)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        raw = _Draft(draft, label)
    except OSError as error:
        raise OptionError(f"{label}: {error.strerror}") from None
    file: IO[Any] = io.BufferedWriter(raw)
    if mode == "w":
        file = io.TextIOWrapper(file, encoding, newline=newline)
    try:
        yield file
        file.flush()
        with _translated(label):
            os.fsync(raw.fileno())
            if place.exists():
                shutil.copymode(place, draft)
            file.close()
            os.replace(draft, place)
    except BaseException:
        with suppress(Exception):
            file.close()
        draft.unlink(missing_ok=True)
        raise


def replaceable(path: Path, *, option: str = "--out", instead: str = "") -> Path:
    """Follows links to the file that a new one replaces; there may be none yet."""
    place = Path(os.path.realpath(path))
    # A loop of links leads to one of them.
    is_free = not os.path.exists(path) and not os.path.islink(place)
    if not is_free and not os.path.isfile(path):
        advice = f"; {instead}" if instead else ""
        raise OptionError(f"{label_of(path, option)}: is not a regular file{advice}")
    return place


class _Draft(io.FileIO):
    def __init__(self, path: Path, label: str) -> None:
        super().__init__(path, "x")
        self._label = label

    def write(self, data: Any, /) -> int:
        with _translated(self._label):
            return super().write(data)


@contextmanager
def _translated(label: str) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise NotWritten(f"{label}: {error.strerror}") from None


def read_text(path: Path, option: str) -> str:
    """Reads a file of UTF-8; raises ``OptionError``, which begins with the option."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(f"{label_of(path, option)} cannot be read: {reason}") from None


def label_of(path: Path, option: str) -> str:
    """Names a path in an error, after its option if it has one."""
    return f"{option}: {path}" if option else str(path)
