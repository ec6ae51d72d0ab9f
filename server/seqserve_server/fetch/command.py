"""``seqserve models fetch``: brings models from a source into a repository.

Only files that a manifest names are read, and they are written under the names in it. All are
checked before any is put in its place, and each version appears whole or not at all.
"""

import hashlib
import posixpath
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from seqserve.errors import NotWritten, OptionError
from seqserve.files import written_whole
from seqserve.options import option, parse
from seqserve_server.artifact.files import FileDigest, atomic_folder, check_digest
from seqserve_server.artifact.manifest import FILE, Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.fetch.source import SHA256, Files, chunks, fetched

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


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(
        FetchOptions,
        argv,
        prog="seqserve models fetch",
        description="Puts models from a folder, an archive or an address into a repository.",
        epilog=_EPILOG,
    )
    with fetched(options.source, options.sha256, int(options.max_gb * 1e9)) as files:
        placed = place(files, options.source, options.model_repository)
    for each in placed:
        megabytes = sum(digest.bytes for digest in each.manifest.files.values()) / 1e6
        state = "ready to serve" if each.is_new else "was there already"
        print(f"{each.folder} ({each.manifest.precision}, {megabytes:.1f} MB): {state}")
    print(f"try: seqserve serve --model-repository {options.model_repository}")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An artifact of a repository."""

    folder: Path
    manifest: Manifest
    is_new: bool
    """Whether it was not there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Artifact:
    manifest: Manifest
    content: bytes
    """Of its manifest's file."""
    files: dict[str, Callable[[], IO[bytes]]]
    """The others, in the order in which they are stored."""
    label: str
    """Its place in the source, for errors."""


def place(files: Files, label: str, repository: Path) -> list[Placed]:
    """Puts all artifacts of a source, which errors call ``label``, into ``<name>/<version>/``.

    Raises ArtifactError if there is none or one is not sound, and OptionError if another artifact
    has the folder of one.
    """
    artifacts = _artifacts(files, label)
    places = [_placed(artifact, repository) for artifact in artifacts]
    try:
        with ExitStack() as stack:
            for artifact, placed in zip(artifacts, places, strict=True):
                if placed.is_new:
                    _write(artifact, stack.enter_context(atomic_folder(placed.folder)))
    except OSError as error:
        raise NotWritten(f"{repository}: {error.strerror}") from None
    return places


def _artifacts(files: Files, label: str) -> list[_Artifact]:
    manifests = [name for name in files if posixpath.basename(name) == FILE]
    if not manifests:
        raise ArtifactError(f"{label}: holds no {FILE}, so no model that the server can read")
    artifacts = [_artifact(files, name, label) for name in manifests]
    labels = [artifact.manifest.label for artifact in artifacts]
    for each in labels:
        if labels.count(each) > 1:
            raise ArtifactError(f"{label}: holds {each} twice")
    return artifacts


def _artifact(files: Files, name: str, label: str) -> _Artifact:
    # A chunk has room for any manifest.
    content = next(chunks(files[name], f"{label}: {name}"), b"")
    manifest = Manifest.parse(content, f"{label}: {name}")
    folder = posixpath.dirname(name)
    for missing in manifest.files:
        if posixpath.join(folder, missing) not in files:
            raise ArtifactError(f"{label}: {name} names {missing}, which is not there as a file")
    others = {
        posixpath.basename(path): opening
        for path, opening in files.items()
        if posixpath.dirname(path) == folder and posixpath.basename(path) in manifest.files
    }
    return _Artifact(
        manifest=manifest, content=content, files=others, label=f"{label}: {folder or '.'}"
    )


def _placed(artifact: _Artifact, repository: Path) -> Placed:
    manifest = artifact.manifest
    folder = repository / manifest.name / str(manifest.version)
    is_new = not folder.exists()
    if not is_new and Manifest.read(folder) != manifest:
        raise OptionError(
            f"{folder} exists already, and is another model than that of {artifact.label}; remove"
            " it, or take another --model-repository"
        )
    return Placed(folder=folder, manifest=manifest, is_new=is_new)


def _write(artifact: _Artifact, folder: Path) -> None:
    for name, opening in artifact.files.items():
        label = f"{artifact.label}/{name}"
        sha256 = hashlib.sha256()
        with written_whole(folder / name, option="") as file:
            for chunk in chunks(opening, label):
                sha256.update(chunk)
                file.write(chunk)
        digest = FileDigest(sha256=sha256.hexdigest(), bytes=(folder / name).stat().st_size)
        check_digest(digest, artifact.manifest.files[name], label)
    with written_whole(folder / FILE, option="") as file:
        file.write(artifact.content)
