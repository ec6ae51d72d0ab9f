"""``seqserve models fetch``: brings models from a source into a repository.

Only files that a manifest names are read, and they are written under the names in it. All are
checked before any is put in its place, and each version appears whole or not at all.
"""

import hashlib
import posixpath
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from seqserve.errors import NotWritten, OptionError
from seqserve.files import written_whole
from seqserve.options import option, parse
from seqserve_server.artifact.files import FileDigest, atomic_folder, check_digest
from seqserve_server.artifact.manifest import FILE, MAX_BYTES, Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.fetch.index import Index, table
from seqserve_server.fetch.source import SHA256, Files, Opening, chunks, fetched, read_whole

_EPILOG = """\
The source holds one version of a model or many, each a folder with its manifest.json, at any depth.
Each file is checked by the hash in its manifest, and an archive by its own; no file of an archive
is written that no manifest names. A version appears whole or not at all, so a server that runs on
the repository can load it. Of an index, what is there already is not fetched again.

examples:
  seqserve models fetch https://models.example.com/index.json --list
  seqserve models fetch https://models.example.com/index.json en-fr fr-en
  seqserve models fetch https://models.example.com/index.json --languages ko-de
  seqserve models fetch https://models.example.com/en-de-4.tar.gz --sha256 3f1b...
  seqserve models fetch en-de-4.tar.gz
  seqserve models fetch /mnt/usb/models --model-repository /srv/models"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """The options of ``seqserve models fetch``."""

    source: str = option(
        help="A folder, an archive (.tar, .tar.gz, .tar.xz, .zip), the https address of one, or an"
        " index (.json) in a folder or at an https address.",
        positional=True,
    )
    names: list[str] = option(
        [],
        help="Models of an index, as en-de or en-de/5; if not given, the highest version of each.",
        positional=True,
    )
    languages: list[str] = option(
        [],
        help="A pair of languages, as de-en, whose model in an index to fetch, or both of a pivot.",
        metavar="SOURCE-TARGET",
        has_variable=False,
    )
    list: bool = option(
        False, help="Only list what would be fetched from an index.", has_variable=False
    )
    sha256: str = option(
        "",
        help="Hash of the archive or index. An address of an archive needs it, unless it ends"
        " with #sha256=... or has a file .sha256 next to it, which reveals damage but not fraud.",
        metavar="HASH",
        fault=lambda text: None if re.fullmatch(SHA256, text) else "64 hexadecimal digits",
        has_variable=False,
    )
    model_repository: Path = option(
        Path("models"), help="Folder of models to write to; created if it is missing."
    )
    max_gb: float = option(
        8.0,
        help="Maximum size of a download, and of an unpacked archive, in GB.",
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
    max_bytes, repository = int(options.max_gb * 1e9), options.model_repository
    if urlsplit(options.source).path.endswith(".json"):
        offers = Index.read(options.source, options.sha256).chosen(options.names, options.languages)
        if options.list:
            print(*table(offers), sep="\n")
            return 0
        if (size := sum(offer.bytes for offer in offers)) > max_bytes:
            raise OptionError(f"source: {size / 1e9:.1f} GB are to be fetched; see --max-gb")
        for offer in offers:
            # One after the other, so that what is whole stays when a later one fails.
            label = f"{options.source}: {offer.label}"
            _tell(place(offer.files(options.source), label, repository))
    elif options.names or options.languages or options.list:
        raise OptionError("source: is not an index (.json), so it has no names to choose or list")
    else:
        with fetched(options.source, options.sha256, max_bytes) as files:
            _tell(place(files, options.source, repository))
    print(f"try: seqserve serve --model-repository {repository}")
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
    files: dict[str, Opening]
    """The others, in the order in which they are stored."""
    label: str
    """Its place in the source, for errors."""


def _tell(placed: Sequence[Placed]) -> None:
    for each in placed:
        megabytes = sum(digest.bytes for digest in each.manifest.files.values()) / 1e6
        state = "ready to serve" if each.is_new else "was there already"
        print(f"{each.folder} ({each.manifest.precision}, {megabytes:.1f} MB): {state}", flush=True)


def place(files: Files, label: str, repository: Path) -> list[Placed]:
    """Puts all artifacts of a source, which errors call ``label``, into ``<name>/<version>/``.

    Raises ArtifactError if there is none or one is not sound, and OptionError if another one is
    there.
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
    content = read_whole(files[name], f"{label}: {name}", MAX_BYTES)
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
            f"{folder} already exists with another model than {artifact.label}; remove it, or"
            " take another --model-repository"
        )
    return Placed(folder=folder, manifest=manifest, is_new=is_new)


def _write(artifact: _Artifact, folder: Path) -> None:
    for name, opening in artifact.files.items():
        label = f"{artifact.label}/{name}"
        sha256, size, expected = hashlib.sha256(), 0, artifact.manifest.files[name]
        with written_whole(folder / name, option="") as file:
            for chunk in chunks(opening, label):
                sha256.update(chunk)
                file.write(chunk)
                size += len(chunk)
                # One that goes on without end fills no disk; its hash is wrong.
                if size > expected.bytes:
                    break
        check_digest(FileDigest(sha256=sha256.hexdigest(), bytes=size), expected, label)
    with written_whole(folder / FILE, option="") as file:
        file.write(artifact.content)
