"""The files of a source: a folder, an archive, or the https address of an archive.

Names in an archive are never used as paths. An archive is read only if it has the hash that the
user, its address or the file ``.sha256`` next to it gives.
"""

import hashlib
import posixpath
import re
import stat
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, BinaryIO, TypeAlias

from seqserve.documents import archive
from seqserve.errors import OptionError, SeqserveError
from seqserve.files import written_whole
from seqserve_server.contract.errors import ArtifactError

Opening: TypeAlias = Callable[[], AbstractContextManager[IO[bytes]]]
Files: TypeAlias = Mapping[str, Opening]
"""Opens each regular file, by its name from the top, in the order in which they are stored."""

SHA256 = r"[0-9A-Fa-f]{64}"
_SUFFIX = ".sha256"
_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 20
# The hash, and perhaps the name of the file.
_MAX_HASH_BYTES = 1 << 12
_MAX_PARTS = 20_000
_MAX_HEADER_BYTES = 1 << 20
_CONTENTS = (*tarfile.REGULAR_TYPES, tarfile.GNUTYPE_SPARSE)
_DAMAGE = (tarfile.TarError, *archive.DAMAGE)


class NotFetched(SeqserveError):
    """An address gives no answer, or another file than expected; the message names it."""


@contextmanager
def fetched(source: str, sha256: str, max_bytes: int) -> Iterator[Files]:
    """Yields the files of a source, a path or an address.

    Without ``sha256`` the address or a file ``.sha256`` has it. ``max_bytes`` bounds the download,
    and what an archive unpacks to.
    """
    if is_address(source):
        with TemporaryDirectory() as folder:
            path = Path(folder, "archive")
            download(source, sha256, max_bytes, path)
            with opened(path, source, max_bytes) as files:
                yield files
        return
    path = Path(source)
    if path.is_file():
        _check_archive(path, sha256)
    elif sha256:
        raise OptionError(f"--sha256: {path} is not an archive, so it has no hash")
    with opened(path, source, max_bytes) as files:
        yield files


def is_address(source: str) -> bool:
    """Returns whether a source is an address; raises OptionError if it is not one of HTTPS."""
    scheme, mark, _ = source.partition("://")
    if mark and scheme.lower() != "https":
        raise OptionError(f"source: {source}: begins with {scheme}://; only https:// is fetched")
    return bool(mark)


def download(address: str, sha256: str, max_bytes: int, place: Path) -> None:
    """Downloads an archive to a new file, and checks its hash.

    The hash is the given one, or ``#sha256=...`` of the address, or that of the file ``.sha256``
    next to it. Raises OptionError if there is none, and NotFetched if the archive does not come, is
    too large or has another hash.
    """
    address, _, fragment = address.partition("#")
    named = re.fullmatch(f"sha256=({SHA256})", fragment)
    expected = sha256 or (named[1] if named else _hash_beside(address))
    actual = hashlib.sha256()
    size = 0
    with written_whole(place, option="") as file, _requested(address) as answer:
        while chunk := answer.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > max_bytes:
                raise NotFetched(f"{address}: is larger than {max_bytes / 1e9:g} GB; see --max-gb")
            actual.update(chunk)
            file.write(chunk)
    check_sha256(actual.hexdigest(), expected, address)


def _check_archive(path: Path, sha256: str) -> None:
    beside = path.with_name(path.name + _SUFFIX)
    try:
        if not sha256 and beside.is_file():
            sha256 = _hash_in(beside.read_bytes())
            if not sha256:
                raise OptionError(f"source: {beside} does not begin with a sha256")
        if sha256:
            with path.open("rb") as file:
                check_sha256(hashlib.file_digest(file, "sha256").hexdigest(), sha256, str(path))
    except OSError as error:
        raise OptionError(f"source: {path}: {error.strerror}") from None


def check_sha256(actual: str, expected: str, label: str) -> None:
    """Raises NotFetched, which calls the file ``label``, if it has another hash than expected."""
    if actual.lower() != expected.lower():
        raise NotFetched(
            f"{label}: sha256 is {actual}, not {expected.lower()}: it is damaged, or another file"
        )


def _hash_in(text: bytes) -> str:
    match = re.match(rf"\\?({SHA256})\b", text.decode("ascii", "replace"))
    return match[1] if match else ""


def _hash_beside(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    beside = urllib.parse.urlunsplit(parts._replace(path=parts.path + _SUFFIX))
    reason = f"{beside} does not begin with one"
    try:
        with _requested(beside) as answer:
            if sha256 := _hash_in(answer.read(_MAX_HASH_BYTES)):
                return sha256
    except NotFetched as error:
        reason = str(error)
    raise OptionError(
        f"source: nothing tells the sha256 of {address}, so --sha256 must, or #sha256=... at the"
        f" end of the address; {reason}"
    )


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
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
def _requested(address: str) -> Iterator[BinaryIO]:
    # Whatever fails while the answer is read is NotFetched too.
    try:
        with urllib.request.build_opener(_HttpsOnly).open(address, timeout=_TIMEOUT_S) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        error.close()
        raise NotFetched(f"{address}: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise NotFetched(f"{address}: {error.reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise NotFetched(f"{address}: {error or type(error).__name__}") from None


@contextmanager
def opened(path: Path, label: str, max_bytes: int) -> Iterator[Files]:
    """Opens a folder, or an archive of tar or zip, which errors call ``label``."""
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file())
        yield {file.relative_to(path).as_posix(): partial(_read, file) for file in found}
    elif not path.is_file():
        raise OptionError(f"source: {label} is neither a file nor a folder")
    elif zipfile.is_zipfile(path):
        with archive.opened(path, label, max_bytes) as parts:
            yield {
                posixpath.normpath(part.filename): partial(parts.open, part)
                for part in parts.infolist()
                if not (part.is_dir() or stat.S_ISLNK(part.external_attr >> 16))
            }
    else:
        with _tar(path, label, max_bytes) as files:
            yield files


def _read(file: Path) -> IO[bytes]:
    return file.open("rb")


def beside(place: str, name: str) -> str:
    """Returns the place that an address, or a path from the folder of another place, names."""
    if is_address(name):
        return name
    if is_address(place):
        return urllib.parse.urljoin(place, name)
    return str(Path(place).parent / name)


def opening_of(place: str) -> Opening:
    """Returns what opens the file at a path or an address."""
    if is_address(place):
        return partial(_requested, place)
    if not Path(place).is_file():
        raise OptionError(f"source: {place} is not a file")
    return partial(_read, Path(place))


def read_whole(opening: Opening, label: str, max_bytes: int) -> bytes:
    """Reads a file, which errors call ``label``; ArtifactError if it is larger."""
    content = b""
    for chunk in chunks(opening, label):
        content += chunk
        if len(content) > max_bytes:
            raise ArtifactError(f"{label}: is larger than {max_bytes:,} bytes")
    return content


def chunks(opening: Opening, label: str) -> Iterator[bytes]:
    """Reads a file of a source piece by piece; errors call it ``label``."""
    try:
        with opening() as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except (*_DAMAGE, OSError) as error:
        raise ArtifactError(f"{label}: cannot be read: {error}") from None


@contextmanager
def _tar(path: Path, label: str, max_bytes: int) -> Iterator[Files]:
    with ExitStack() as stack:
        try:
            parts = stack.enter_context(tarfile.open(path, tarinfo=_Part))
        except (*_DAMAGE, OSError) as error:
            raise OptionError(f"{label}: is neither a tar nor a zip archive: {error}") from None
        try:
            files = {
                posixpath.normpath(part.name): partial(_extracted, parts, part)
                for part in _bounded(parts, label, max_bytes)
                # Neither folders, links nor devices.
                if part.isreg()
            }
        except (*_DAMAGE, OSError) as error:
            raise ArtifactError(f"{label}: is damaged: {error}") from None
        yield files


class _Part(tarfile.TarInfo):
    # Long names and other headers are read as a whole, so they must be short enough. The method is
    # private, but the only one that every release of Python calls for every header.
    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type not in _CONTENTS and self.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header has {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]


def _bounded(parts: tarfile.TarFile, label: str, max_bytes: int) -> Iterator[tarfile.TarInfo]:
    size = 0
    for count, part in enumerate(parts, start=1):
        size += part.size
        if count > _MAX_PARTS or size > max_bytes:
            raise OptionError(
                f"{label}: unpacks to more than {_MAX_PARTS:,} parts or {max_bytes / 1e9:g} GB;"
                " see --max-gb"
            )
        yield part


def _extracted(parts: tarfile.TarFile, part: tarfile.TarInfo) -> IO[bytes]:
    file = parts.extractfile(part)
    assert file is not None  # it is a regular file
    return file
