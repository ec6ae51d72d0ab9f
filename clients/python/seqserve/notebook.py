"""Parts of the HTML that notebooks show in place of the ``repr`` of a result.

All text is escaped. There is no script and no colour of text, so it reads on light pages and
on dark ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def page(parts: Iterable[str]) -> str:
    """Joins parts."""
    return f"<div>{''.join(parts)}</div>"


def title(text: str) -> str:
    """Shows a text, which may be written from right to left."""
    return f'<div dir="auto" style="font-size: 1.2em">{escape(text)}</div>'


def note(text: str) -> str:
    """Shows a text less clearly."""
    return f'<div style="opacity: .7">{escape(text)}</div>'


def numbered(items: Iterable[tuple[str, str]]) -> str:
    """Lists texts with a note behind each, which may be empty."""
    lines = (
        f'<li><span dir="auto">{escape(text)}</span>'
        + (f' <small style="opacity: .7">{escape(behind)}</small>' if behind else "")
        + "</li>"
        for text, behind in items
    )
    return f"<ol>{''.join(lines)}</ol>"


def folded(summary: str, content: str) -> str:
    """Shows a summary, behind which the reader finds the content."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"
