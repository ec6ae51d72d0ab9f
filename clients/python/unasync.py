"""Generates the blocking client from the asyncio client: ``_async/*.py`` to ``_sync/*.py``.

Drops ``async`` and ``await``, renames what has another name without them, and rewords docstrings.
``make clients`` runs it; ``make check-clients`` fails if the generated files are stale.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from itertools import accumulate
from pathlib import Path

PACKAGE = Path(__file__).parent / "seqserve"
SOURCES, TARGETS = PACKAGE / "_async", PACKAGE / "_sync"
HEADER = "# Generated from seqserve/_async/{} by `make clients`; do not edit.\n"

# Any other name loses its prefix Async.
NAMES = {
    "_async": "_sync",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "aclosing": "closing",
    "aio_channel": "channel",
    "anext": "next",
    "StopAsyncIteration": "StopIteration",
    "tasks": "threads",
}
# Types whose number of parameters differs.
TYPES = {
    r"AsyncGenerator\[(.+), None\]": r"Generator[\1, None, None]",
    r"Coroutine\[Any, Any, (\w+)\]": r"\1",
    r"(Iterable\[\w+\]) \| AsyncIterable\[\w+\]": r"\1",
}
# Sentences of docstrings and comments, whole, then words.
PHRASES = {
    "The asyncio client: its calls are awaited on one event loop.": (
        "The blocking client: a call returns when its answer has arrived."
    ),
    "The asyncio client, from which ``make clients`` generates the blocking one.": (
        "The blocking client."
    ),
    "Cancelling a task cancels its call.": "Threads may share it.",
    "a plain iterable must not block the event loop.": "threads read them, one at a time.",
    "It ends with its call. A cancelled task would leak the message that gRPC reads for it.": (
        "It ends with its call."
    ),
}
WORDS = {
    r"\basync (?=def|for|with)|\bawait ": "",
    r"\bAsync(?=[A-Z])": "",
    r"\btask": "thread",
    r"\bTask": "Thread",
    r"\b_async\b": "_sync",
}


def synchronous(source: str) -> str:
    """Returns the synchronous form of an asynchronous module, not yet formatted."""
    for pattern, replacement in TYPES.items():
        source = re.sub(pattern, replacement, source)
    lines = source.splitlines(keepends=True)
    starts = list(accumulate(map(len, lines), initial=0))
    parts, end = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first, last = (starts[row - 1] + column for row, column in (token.start, token.end))
        parts.append(source[end:first])
        end = last
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            # With the space behind it.
            end += 1
        elif token.type == tokenize.NAME:
            parts.append(NAMES.get(token.string, token.string.removeprefix("Async")))
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            parts.append(_reworded(token.string))
        else:
            parts.append(source[first:last])
    return "".join(parts)


def generated() -> dict[Path, str]:
    """Returns the text of every generated file by its path."""
    sources = sorted(SOURCES.glob("*.py"))
    everything = "".join(source.read_text() for source in sources)
    unused = [phrase for phrase in PHRASES if phrase not in everything]
    if unused:
        raise ValueError(f"no source has the sentence {unused[0]!r}")
    return {
        TARGETS / source.name: _formatted(
            HEADER.format(source.name) + synchronous(source.read_text())
        )
        for source in sources
    }


def _reworded(text: str) -> str:
    for phrase, replacement in PHRASES.items():
        text = text.replace(phrase, replacement)
    for pattern, replacement in WORDS.items():
        text = re.sub(pattern, replacement, text)
    return text


def _formatted(text: str) -> str:
    for command in (["check", "--quiet", "--select=I,F401,UP034", "--fix"], ["format"]):
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--stdin-filename",
            str(TARGETS / "client.py"),
            "-",
        ]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    """Writes the generated files; with ``--check`` fails if one is stale or left over."""
    files = generated()
    if "--check" not in sys.argv:
        for path, text in files.items():
            path.write_text(text)
    found = {path: path.read_text() for path in TARGETS.glob("*.py")}
    stale = sorted(path.name for path in files.keys() | found if files.get(path) != found.get(path))
    if stale:
        sys.exit(f"stale: _sync/{', _sync/'.join(stale)}; run `make clients`")


if __name__ == "__main__":
    main()
