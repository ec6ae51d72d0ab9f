"""The file of ``--tokens``: the tokens that clients may show, and the scopes of each."""

from __future__ import annotations

from hmac import compare_digest
from pathlib import Path

from seqserve.auth import TokenEntry, digest_of
from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve_server.front.security.reloading import Reload, Reloaded

_OPTION = flag_of("tokens")
_MAX_FILE_BYTES = 1 << 20


class Tokens:
    """The current entries of the file; if the file is broken, the last valid ones."""

    def __init__(self, path: Path) -> None:
        """Reads the file; raises OptionError if it is unreadable or a line is malformed."""
        self._file = Reloaded("tokens", {_OPTION: path}, lambda: _read(path))

    @property
    def last_reload(self) -> Reload:
        """The last reload of the file."""
        return self._file.last

    def find(self, token: str) -> TokenEntry | None:
        """Finds the entry of a token.

        Takes the same time for known and unknown tokens, so that timing reveals nothing.
        """
        digest, match = digest_of(token), None
        for entry in self._file.value:
            if compare_digest(entry.digest, digest):
                match = entry
        return match


def _read(path: Path) -> tuple[TokenEntry, ...]:
    entries: dict[bytes, TokenEntry] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            entry = TokenEntry.parse(line)
        except OptionError as error:
            raise OptionError(f"{_OPTION}: {path}, line {number}: {error}") from None
        if entry.digest in entries:
            raise OptionError(f"{_OPTION}: {path}, line {number}: the hash is a duplicate")
        entries[entry.digest] = entry
    if not entries:
        raise OptionError(f"{_OPTION}: {path} holds no token; `seqserve token` makes one")
    return tuple(entries.values())


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise OptionError(f"{_OPTION}: {path} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise OptionError(f"{_OPTION}: {path} is larger than {_MAX_FILE_BYTES} bytes")
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        raise OptionError(f"{_OPTION}: {path} is not UTF-8 text") from None
