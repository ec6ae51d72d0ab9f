"""The encoding of a text, by its byte order mark or by the caller."""

import codecs
import re

from seqserve.errors import OptionError

MARK = "\ufeff"
HEAD_BYTES = 4
"""Bytes at the beginning of a text that tell its encoding."""
# A mark of UTF-32 begins with one of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# A Latin letter or a line feed in each encoding.
_UNMARKED = {
    "utf-32-le": re.compile(rb"[^\0]\0\0\0"),
    "utf-32-be": re.compile(rb"\0\0\0[^\0]"),
    "utf-16-le": re.compile(rb"[^\0]\0"),
    "utf-16-be": re.compile(rb"\0[^\0]"),
}


def marked(head: bytes) -> str:
    """Returns the encoding whose byte order mark a text begins with; empty if it has none."""
    return next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), "")


def unmarked(head: bytes) -> str:
    """Returns the encoding whose NUL characters a text begins with; empty if it has none."""
    return next((name for name, pattern in _UNMARKED.items() if pattern.match(head)), "")


def decoded(content: bytes, fallback: str = "") -> tuple[str, str, str]:
    """Decodes a whole text, which is UTF-8 unless a byte order mark tells otherwise.

    If it is not UTF-8, it has the encoding ``fallback``, if that is given.

    Returns:
        The text without its mark, the mark or nothing, and the encoding to write it back in.

    Raises:
        OptionError: It is not in that encoding, or has a NUL character, so it is not text.
    """
    told = marked(content)
    encoding = told or "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if fallback and not told:
            return content.decode(fallback), "", fallback
        reason = f"is not {encoding}: {error.reason} at byte {error.start}; convert it to UTF-8"
        raise OptionError(reason) from None
    if "\0" in text:
        found = unmarked(content) if not told else ""
        reason = f"has NUL characters as {found} has them; convert it to UTF-8"
        raise OptionError(reason if found else "has a NUL character; the file is not text")
    mark = MARK if told else ""
    return text.removeprefix(mark), mark, encoding
