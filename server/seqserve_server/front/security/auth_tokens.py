"""The file of ``--tokens``: by which tokens callers are known, and what each may do."""

from __future__ import annotations

from hmac import compare_digest
from pathlib import Path

from seqserve.errors import OptionError
from seqserve.options import flag_of
from seqserve.token_entry import TokenEntry, digest_of
from seqserve_server.front.security.reloading import Reloaded

_OPTION = flag_of("tokens")
_MOST_BYTES = 1 << 20


class Tokens:
    """The entries of the file, as it is now; a broken one leaves those that were."""

    def __init__(self, path: Path) -> None:
        """Reads them.

        Raises:
            OptionError: The file cannot be read, or a line is malformed; its number is named.
        """
        self._file = Reloaded("tokens", {_OPTION: path}, lambda: _read(path))

    def find(self, token: str) -> TokenEntry | None:
        """Finds the entry of a token.

        It takes as long for one that is there as for one that is not, whatever they have in common.
        """
        digest, found = digest_of(token), None
        for entry in self._file.value:
            if compare_digest(entry.digest, digest):
                found = entry
        return found

    def __len__(self) -> int:
        """Gives how many there are."""
        return len(self._file.value)


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
            raise OptionError(f"{_OPTION}: {path}, line {number}: the hash was there before")
        entries[entry.digest] = entry
    if not entries:
        raise OptionError(f"{_OPTION}: {path} holds no token; `seqserve token` makes one")
    return tuple(entries.values())


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise OptionError(f"{_OPTION}: {path} cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise OptionError(f"{_OPTION}: {path} is larger than {_MOST_BYTES} bytes")
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        raise OptionError(f"{_OPTION}: {path} is no text") from None
