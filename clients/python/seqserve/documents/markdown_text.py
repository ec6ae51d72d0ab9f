"""Text of Markdown: read without its escapes, written with those that it needs.

Source: https://spec.commonmark.org/0.31.2/, sections 2.4, 2.5 and 4 to 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from markdown_it.common.utils import unescapeAll

from seqserve.documents.inline import Syntax

_PUNCTUATION = r"[!-/:-@\[-`{-~]"
ESCAPE = rf"\\{_PUNCTUATION}"
"""A pattern of characters that are no markup."""
_NOT_IN_ADDRESS = r"\s<>()\[\]`*|\\"
_PARENTHESES = rf"\([^{_NOT_IN_ADDRESS}]*\)"
ADDRESS = (
    rf"(?<!\w)(?:(?:https?|ftp)://|www\.)(?:[^{_NOT_IN_ADDRESS}]|{_PARENTHESES})*"
    rf"(?:[^{_NOT_IN_ADDRESS}.,;:!?'\"_~]|{_PARENTHESES})"
    r"|(?<![\w.+-])[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+"
)
"""A pattern of addresses that stand in a text as they are."""
_ESCAPED = re.compile(rf"\\({_PUNCTUATION})")
# What may be markup within a line.
_MARK = (
    rf"\\(?={_PUNCTUATION}|$)|[`\[\]]|(?<!\s)\*|\*(?!\s)|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~"
    r"|<(?=[A-Za-z/!?])|&(?=#?\w+;)"
)
# What is markup in extensions of Markdown alone.
_OF_EXTENSIONS = "#$@^{|}~"
# What makes a line a heading, an item, a quote, or the line above a heading.
_START = re.compile(r"(?=#{1,6}(?!\S)|[-+](?!\S)|-[- ]*$|=+\s*$|>)|\d{1,9}(?=[.)](?!\S))")


def syntax(texts: Iterable[str], *, is_cell: bool) -> Syntax:
    """Tells how the text of a block is read and written.

    Args:
        texts: What the document has; what extensions need is escaped where it is escaped there.
        is_cell: Whether the block is the cell of a table.
    """
    escaped = {mark for text in texts for mark in _ESCAPED.findall(text)}
    kept = [mark for mark in _OF_EXTENSIONS if mark in escaped or (is_cell and mark == "|")]
    marks = re.compile("|".join([_MARK, *map(re.escape, kept)]))
    return Syntax(
        read=unescapeAll,
        write=lambda text: marks.sub(r"\\\g<0>", text),
        is_text=lambda text: any(map(str.isalpha, text)),
    )


def at_line_start(text: str) -> str:
    """Escapes what would make something else of a line that begins a paragraph."""
    start = _START.match(text)
    return text if start is None else f"{start[0]}\\{text[start.end() :]}"
