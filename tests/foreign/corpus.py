"""Documents that other projects wrote, from ``make build/foreign/.ready``."""

import hashlib
import re
from pathlib import Path

from seqserve.documents.formats import Format

FILES = Path("build/foreign/files")
SUFFIXES = {
    Format.DOCX: [".docx"],
    Format.PPTX: [".pptx"],
    Format.ODT: [".odt"],
    Format.EPUB: [".epub"],
    Format.MARKDOWN: [".md"],
    Format.XLIFF: [".xlf", ".xliff"],
    Format.HTML: [".html"],
    Format.PO: [".po"],
}
MOST = 80
"""Documents of a format."""
_MOST_BYTES = 400_000


def documents(kind: Format) -> list[Path]:
    """Documents of a format, the same ones each time, from all packages."""
    found = (
        path
        for suffix in SUFFIXES[kind]
        for path in FILES.rglob(f"*{suffix}")
        # The tests of pandoc's command are listings of code.
        if "test/command" not in str(path)
        # It is not well-formed.
        and path.name != "normalize.docx"
        and 0 < path.stat().st_size < _MOST_BYTES
    )
    return sorted(found, key=lambda path: hashlib.sha256(str(path).encode()).digest())[:MOST]


def untranslated(kind: Format, content: bytes) -> bytes:
    """A document without the translations that it has beside its texts."""
    if kind is Format.XLIFF:
        return re.sub(rb"<target\b.*?</target>", b"", content, flags=re.DOTALL)
    if kind is Format.PO:
        header, *entries = re.split(rb"(?<=\n)(?=\n)", content)
        translation = rb'^(msgstr(?:\[\d+\])?) .*(?:\n".*)*'
        empty = (re.sub(translation, rb'\1 ""', each, flags=re.MULTILINE) for each in entries)
        return b"".join([header, *empty])
    return content
