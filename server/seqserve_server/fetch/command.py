"""``seqserve models fetch``: brings a model from a folder, an archive or an address."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve_server.fetch.download import (
    SHA256,
    SUFFIX,
    check_sha256,
    download,
    hash_in,
    is_address,
)
from seqserve_server.fetch.placing import Placed, place
from seqserve_server.fetch.source import Files, opened

_EPILOG = """\
The source holds one version of a model or many, each a folder with its manifest.json, at any depth.
Each file is checked by the hash in its manifest, and an archive by its own; no file of an archive
is written that no manifest names. A version appears whole or not at all, so a server that runs on
the repository can load it.

examples:
  seqserve models fetch https://models.example.com/en-de-4.tar.gz --sha256 3f1b...
  seqserve models fetch en-de-4.tar.gz
  seqserve models fetch /mnt/usb/models --model-repository /srv/models"""


def _fault(sha256: str) -> str | None:
    return None if re.fullmatch(SHA256, sha256) else "64 hexadecimal digits"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """The options of ``seqserve models fetch``."""

    source: str = option(
        help="A folder, an archive (.tar, .tar.gz, .tar.xz, .zip), or the https address of one.",
        positional=True,
    )
    sha256: str = option(
        "",
        help="Hash of the archive. An address needs it, unless it ends with #sha256=... or there is"
        " a file .sha256 beside it, which shows damage but not fraud.",
        metavar="HASH",
        fault=_fault,
        has_variable=False,
    )
    model_repository: Path = option(
        Path("models"), help="Folder of models to write to; made if there is none."
    )
    max_gb: float = option(
        8.0,
        help="Most that is downloaded, and most that an archive may unpack to, in GB.",
        minimum=0,
        maximum=1e6,
    )

    @property
    def max_bytes(self) -> int:
        """The bound in bytes."""
        return int(self.max_gb * 1e9)


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status.

    Raises:
        SeqserveError: The source cannot be read, is not sound, or its place is taken.
    """
    options = parse(
        FetchOptions,
        argv,
        prog="seqserve models fetch",
        description="Puts models from a folder, an archive or an address into a repository.",
        epilog=_EPILOG,
    )
    with _files(options) as files:
        placed = place(files, options.source, options.model_repository)
    print(*map(_line, placed), sep="\n")
    print(f"try: seqserve serve --model-repository {options.model_repository}")
    return 0


@contextmanager
def _files(options: FetchOptions) -> Iterator[Files]:
    """Yields the files of the source, whose hash is checked if it has one."""
    if is_address(options.source):
        with TemporaryDirectory() as folder:
            archive = Path(folder, "archive")
            download(options.source, options.sha256, options.max_bytes, archive)
            with opened(archive, options.source, options.max_bytes) as files:
                yield files
        return
    path = Path(options.source)
    if path.is_file():
        _check_hash(path, options.sha256)
    elif options.sha256:
        raise OptionError(f"--sha256: {path} is not an archive, so it has no hash of its own")
    with opened(path, options.source, options.max_bytes) as files:
        yield files


def _check_hash(archive: Path, sha256: str) -> None:
    """Checks an archive by its hash, or else by the file ``.sha256`` beside it, if there is one."""
    beside = archive.with_name(archive.name + SUFFIX)
    try:
        if not sha256 and beside.is_file():
            sha256 = hash_in(beside.read_bytes())
            if not sha256:
                raise OptionError(f"source: {beside} does not begin with a sha256")
        if sha256:
            with archive.open("rb") as file:
                check_sha256(hashlib.file_digest(file, "sha256").hexdigest(), sha256, str(archive))
    except OSError as error:
        raise OptionError(f"source: {archive}: {error.strerror}") from None


def _line(placed: Placed) -> str:
    manifest = placed.manifest
    megabytes = sum(digest.bytes for digest in manifest.files.values()) / 1e6
    state = "ready to serve" if placed.is_new else "was there already"
    return f"{placed.folder} ({manifest.precision}, {megabytes:.1f} MB): {state}"
