"""Downloads an archive over HTTPS, and finds the hash that it must have."""

from __future__ import annotations

import hashlib
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, BinaryIO

from seqserve.errors import OptionError, SeqserveError
from seqserve.files import written_whole

SHA256 = r"[0-9A-Fa-f]{64}"
SUFFIX = ".sha256"
"""Ends the name of the file beside an archive that begins with its hash."""
_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 20
# The hash, and perhaps the name of the file.
_MAX_HASH_BYTES = 1 << 12


class NotFetched(SeqserveError):
    """An address gives no answer, or not the file that was meant; the message names it."""


def is_address(source: str) -> bool:
    """Tells whether a source is an address.

    Raises:
        OptionError: It is one, but not of HTTPS.
    """
    scheme, mark, _ = source.partition("://")
    if mark and scheme.lower() != "https":
        raise OptionError(f"source: {source}: begins with {scheme}://; only https:// is fetched")
    return bool(mark)


def download(address: str, sha256: str, max_bytes: int, place: Path) -> None:
    """Writes to ``place`` what an address gives, and checks its hash.

    Args:
        address: One of HTTPS; ``#sha256=...`` at its end is the hash.
        sha256: The hash; if empty, that of the address or of the file ``.sha256`` beside it.
        max_bytes: Most bytes.
        place: A file to make.

    Raises:
        OptionError: Nothing tells the hash.
        NotFetched: There is no answer, it is larger than ``max_bytes``, or it has another hash.
        NotWritten: The file cannot be written.
    """
    address, _, fragment = address.partition("#")
    named = re.fullmatch(f"sha256=({SHA256})", fragment)
    expected = sha256 or (named[1] if named else _hash_beside(address))
    actual = hashlib.sha256()
    size = 0
    with written_whole(place, option="") as file, _opened(address) as answer:
        while chunk := answer.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > max_bytes:
                raise NotFetched(f"{address}: is larger than {max_bytes / 1e9:g} GB; see --max-gb")
            actual.update(chunk)
            file.write(chunk)
    check_sha256(actual.hexdigest(), expected, address)


def check_sha256(actual: str, expected: str, label: str) -> None:
    """Raises NotFetched, which calls the archive ``label``, unless it has this hash."""
    if actual.lower() != expected.lower():
        raise NotFetched(
            f"{label}: sha256 is {actual}, not {expected.lower()}: it is damaged, or another"
            " archive"
        )


def hash_in(text: bytes) -> str:
    """Returns the hash that a file ``.sha256`` begins with; empty if it begins with none."""
    match = re.match(rf"\\?({SHA256})\b", text.decode("ascii", "replace"))
    return match[1] if match else ""


def _hash_beside(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    beside = urllib.parse.urlunsplit(parts._replace(path=parts.path + SUFFIX))
    reason = f"{beside} begins with none"
    try:
        with _opened(beside) as answer:
            if sha256 := hash_in(answer.read(_MAX_HASH_BYTES)):
                return sha256
    except NotFetched as error:
        reason = str(error)
    raise OptionError(
        f"source: nothing tells the sha256 of {address}, so --sha256 must, or #sha256=... at the"
        f" end of the address; {reason}"
    )


class _WithinHttps(urllib.request.HTTPRedirectHandler):
    """Follows an address to others of HTTPS only."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme != "https":
            fp.close()
            raise urllib.error.URLError(f"it leads to {newurl}, which is not https://")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _opened(address: str) -> Iterator[BinaryIO]:
    """Yields what an address gives; also what fails while it is read is a NotFetched."""
    try:
        with urllib.request.build_opener(_WithinHttps).open(address, timeout=_TIMEOUT_S) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        error.close()
        raise NotFetched(f"{address}: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise NotFetched(f"{address}: {error.reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise NotFetched(f"{address}: {error or type(error).__name__}") from None
