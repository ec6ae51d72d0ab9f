"""Documents that are archives of parts, as .docx, .odt and .epub: which parts are translated."""

import html
import lzma
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from seqserve.documents.formats import ARCHIVES, Format, declaring_utf_8, encoding_of, format_of
from seqserve.documents.office import folded
from seqserve.documents.passage import ParseError, Parser, Passage
from seqserve.documents.plain_text import decoded
from seqserve.documents.xml_source import read
from seqserve.errors import OptionError

# An archive may be small and what is in it large.
_MAX_BYTES = 1 << 30
_MAX_TEXT_BYTES = 1 << 26
_MAX_INDEX_BYTES = 1 << 23
_MAX_PARTS = 20_000
_CHUNK_BYTES = 1 << 16
# Parts of a book: its pages and its table of contents.
_PAGES = {"application/xhtml+xml", "application/x-dtbncx+xml"}
# What parts have that are read; without it they may be large. Other texts of sheets are in a part
# that all of them share.
_IN_SHEET = re.compile(rb"inlineStr|(?:odd|even|first)(?:Header|Footer)")
_IN_STYLES = re.compile(rb"[\s:]lang[\s=]|:themeFontLang\s")
_NEEDED = dict.fromkeys(("styles", "settings", "theme"), _IN_STYLES) | {"worksheet": _IN_SHEET}
# Elements whose attributes name cells by their texts. Excel repairs a file where they differ.
_NAMED = re.compile(r"<(?:[^\s<>/:]+:)?(?:tableColumn|cacheField)(\s[^<]*)")
_ATTRIBUTE_NAME = re.compile(r"\s(?:name|totalsRowLabel)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_OPEN_DOCUMENT = "application/vnd.oasis.opendocument."
# The type that an archive declares, or a folder that it contains.
_MARKS = {
    **{f"{_OPEN_DOCUMENT}text": Format.ODT, f"{_OPEN_DOCUMENT}presentation": Format.ODP},
    **{f"{_OPEN_DOCUMENT}spreadsheet": Format.ODS, "application/epub+zip": Format.EPUB},
    **{"word": Format.DOCX, "ppt": Format.PPTX, "xl": Format.XLSX},
}
_ADVICE = "; a document of an older format, or with a password, must be saved anew"
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(NotImplementedError, EOFError, IndexError, ValueError),
)
"""Python's errors for a damaged archive, in addition to OSError."""


@contextmanager
def opened(
    file: Path | BinaryIO, name: str, max_bytes: int = _MAX_BYTES
) -> Iterator[zipfile.ZipFile]:
    """Opens an archive; ``max_bytes`` limits the size of all its parts."""
    try:
        archive = zipfile.ZipFile(file)
    except (*DAMAGE, OSError) as error:
        raise _unreadable(name, error, _ADVICE) from None
    with archive:
        parts = archive.infolist()
        size = sum(part.file_size for part in parts)
        if len(parts) > _MAX_PARTS or size > max_bytes:
            most = f"{_MAX_PARTS:,} of {max_bytes:,} can be read"
            raise OptionError(f"{name}: has {len(parts):,} parts of {size:,} bytes; {most}")
        if any(part.flag_bits & 1 for part in parts):
            raise OptionError(f"{name}: is encrypted; save it without a password")
        if len({part.filename for part in parts}) < len(parts):
            raise OptionError(f"{name}: has two parts of the same name")
        if not all(part.filename for part in parts):
            raise OptionError(f"{name}: has a part without a name")
        yield archive


def format_of_file(path: Path) -> Format:
    """Returns the format of a file by its suffix; without one, an archive tells its format."""
    if path.suffix or not path.is_file() or not zipfile.is_zipfile(path):
        return format_of(path)
    with opened(path, str(path)) as archive:
        told = [part.filename.partition("/")[0] for part in archive.infolist()]
        for part in archive.infolist():
            if part.filename == "mimetype" and part.file_size < _CHUNK_BYTES:
                told.insert(0, text_of(archive, part).strip())
    kind = next((_MARKS[mark] for mark in told if mark in _MARKS), None)
    if kind is None:
        raise OptionError(f"{path}: is an archive of no format that is known; --format names one")
    return kind


def texts_of(kind: Format, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Returns the parts that are translated, by the archive's own lists.

    Sources: ECMA-376, part 2, section 9 (relationships); EPUB 3.3, sections 4.2.6 and 5.6.
    """
    parts = {part.filename: part for part in archive.infolist()}
    relations, index, pattern = ARCHIVES[kind]
    if index in parts:
        names = _related(archive, relations, parts) if relations else _in_book(archive, parts)
        return [part for name, part in parts.items() if name in names]
    return [part for name, part in parts.items() if re.fullmatch(pattern, name)]


def _related(
    archive: zipfile.ZipFile, relations: Collection[str], parts: Mapping[str, zipfile.ZipInfo]
) -> set[str]:
    names, seen = set[str](), set[str]()
    left = [""]
    while left:
        folder, name = posixpath.split(left.pop())
        listed = parts.get(posixpath.join(folder, "_rels", f"{name}.rels"))
        for each in _elements(archive, listed):
            kind, mode = each.get("Type", "").rpartition("/")[2], each.get("TargetMode")
            target = _path(folder, each.get("Target", ""))
            if target not in parts or target in seen or mode == "External":
                continue
            if kind in relations:
                seen.add(target)
                left.append(target)
                if kind not in _NEEDED or _is_in(archive, parts[target], _NEEDED[kind]):
                    names.add(target)
    return names


def _is_in(archive: zipfile.ZipFile, part: zipfile.ZipInfo, pattern: re.Pattern[bytes]) -> bool:
    end = b""
    for chunk in _chunks(archive, part):
        if pattern.search(end + chunk):
            return True
        end = chunk[-16:]
    return False


def parser_within(
    archive: zipfile.ZipFile, kind: Format, parser: Callable[..., Iterator[Passage]]
) -> Parser:
    """Returns the parser of the parts of an archive, which may need what others of them say."""
    if ARCHIVES[kind] is not ARCHIVES[Format.XLSX]:
        return parser
    kept: set[str] = set()
    for part in archive.infolist():
        folder, _, name = part.filename.rpartition("/")
        is_named = folder.endswith("tables") or "pivotCacheDefinition" in name
        if is_named and name.endswith(".xml"):
            for attributes in _NAMED.findall(text_of(archive, part)):
                names = map("".join, _ATTRIBUTE_NAME.findall(attributes))
                kept.update(folded(html.unescape(name)) for name in names)
    return partial(parser, kept=kept)


def _in_book(archive: zipfile.ZipFile, parts: Mapping[str, zipfile.ZipInfo]) -> set[str]:
    names: set[str] = set()
    packages = _elements(archive, parts["META-INF/container.xml"])
    for path in {each.get("full-path", "") for each in packages}:
        for item in _elements(archive, parts.get(path)):
            names.add(path)
            if item.get("media-type") in _PAGES:
                names.add(_path(posixpath.dirname(path), unquote(item.get("href", ""))))
    return names


def _elements(
    archive: zipfile.ZipFile, part: zipfile.ZipInfo | None
) -> Iterator[Mapping[str, str]]:
    if part is not None and part.file_size > _MAX_INDEX_BYTES:
        reason = f"has {part.file_size:,} bytes; {_MAX_INDEX_BYTES:,} can be read"
        raise OptionError(f"{_name(archive, part)}: {reason}")
    try:
        left = [] if part is None else [read(text_of(archive, part), {})]
    except ParseError as error:
        raise OptionError(f"{_name(archive, part)}: {error}") from None
    while left:
        node = left.pop()
        yield node.attributes
        left += node.elements()


def _path(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")


def rewrite(
    source: zipfile.ZipFile,
    target: zipfile.ZipFile,
    kind: Format,
    written: Callable[[zipfile.ZipInfo], str],
) -> None:
    """Writes an archive again, with what is written for each part that is translated.

    The other parts stay to the byte.
    """
    texts = {part.filename for part in texts_of(kind, source)}
    if not texts:
        reason = (
            f"has no part with the text of a document of {kind.value}; it may be of another format"
        )
        raise OptionError(": ".join(filter(None, (source.filename, reason))))
    for part in source.infolist():
        if part.filename in texts:
            target.writestr(copy(part), written(part).encode(), part.compress_type)
            continue
        with target.open(copy(part), "w") as new:
            for chunk in _chunks(source, part):
                new.write(chunk)


def text_of(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> str:
    """Reads a part that is translated; it is written back in UTF-8, and declares that."""
    name = _name(archive, part)
    if part.file_size > _MAX_TEXT_BYTES:
        raise OptionError(f"{name}: has {part.file_size:,} bytes; {_MAX_TEXT_BYTES:,} can be read")
    content = b"".join(_chunks(archive, part))
    try:
        text, mark, encoding = decoded(content, encoding_of(Format.HTML, content))
    except OptionError as error:
        raise OptionError(f"{name}: {error}") from None
    return mark + text if encoding == "utf-8" else declaring_utf_8(text)


def _chunks(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with archive.open(part) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except (*DAMAGE, OSError) as error:
        raise _unreadable(_name(archive, part), error) from None


def check(archive: zipfile.ZipFile) -> None:
    """Raises OptionError, which names it, if a part is damaged, as those that stay may be."""
    for part in archive.infolist():
        for _ in _chunks(archive, part):
            pass


def _name(archive: zipfile.ZipFile, part: zipfile.ZipInfo | None) -> str:
    return ": ".join(filter(None, (archive.filename, part.filename if part else "")))


def _unreadable(name: str, error: Exception, advice: str = "") -> OptionError:
    if isinstance(error, OSError) and error.strerror:
        return OptionError(f"{name}: {error.strerror}")
    return OptionError(f"{name}: is not a readable archive: {error}{advice}")
