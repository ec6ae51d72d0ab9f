"""Generates the blocking client from the asyncio client: ``_async/*.py`` to ``_sync/*.py``.

Drops ``async`` and ``await``, renames what has another name without them, and rewords docstrings.
``make clients`` runs it; ``make check-clients`` fails if the generated files are stale.
"""

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
# In docstrings and comments: whole sentences, then words.
SENTENCES = {
    "The asyncio client, from which ``make clients`` generates the blocking one.": (
        "The blocking client."
    ),
    "its calls are awaited on one event loop.": "a call returns when its answer has arrived.",
    "Cancelling a task cancels its call.": "Threads may share it.",
    "a plain iterable must not block the event loop.": "threads read them, one at a time.",
    " A cancelled task would leak the message that gRPC reads for it.": "",
}
WORDS = {
    r"\basync (?=def|for|with)|\bawait ": "",
    r"\bAsync(?=[A-Z])": "",
    r"\basyncio client": "blocking client",
    r" on an event loop": "",
    r"\btask": "thread",
    r"\bTask": "Thread",
}


def synchronous(source: str) -> str:
    """Returns the synchronous form of an asynchronous module, not yet formatted."""
    for pattern, replacement in TYPES.items():
        source = re.sub(pattern, replacement, source)
    starts = list(accumulate(map(len, source.splitlines(keepends=True)), initial=0))
    parts, end = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first, last = (starts[row - 1] + column for row, column in (token.start, token.end))
        text = source[first:last]
        if token.type == tokenize.NAME:
            text = NAMES.get(text, text.removeprefix("Async"))
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            text = _reworded(text)
        is_dropped = token.type == tokenize.NAME and text in ("async", "await")
        parts += [source[end:first], "" if is_dropped else text]
        # A keyword takes the following space along.
        end = last + is_dropped
    return "".join(parts)


def generated() -> dict[Path, str]:
    """Returns the text of every generated file by its path."""
    sources = {path.name: path.read_text() for path in sorted(SOURCES.glob("*.py"))}
    for sentence in SENTENCES:
        if not any(sentence in source for source in sources.values()):
            raise ValueError(f"no source has the sentence {sentence!r}")
    return {
        TARGETS / name: _formatted(HEADER.format(name) + synchronous(source))
        for name, source in sources.items()
    }


def _reworded(text: str) -> str:
    for sentence, replacement in SENTENCES.items():
        text = text.replace(sentence, replacement)
    for pattern, replacement in WORDS.items():
        text = re.sub(pattern, replacement, text)
    return text


def _formatted(text: str) -> str:
    as_file = ["--stdin-filename", str(TARGETS / "client.py"), "-"]
    for command in (["check", "--quiet", "--select=I,F401", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, *as_file]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    """Writes the generated files; with ``--check`` only fails if one is stale or left over."""
    files = generated()
    if "--check" not in sys.argv:
        for path, text in files.items():
            path.write_text(text)
    current = {path: path.read_text() for path in TARGETS.glob("*.py")}
    stale = sorted(
        path.name for path in files.keys() | current if files.get(path) != current.get(path)
    )
    if stale:
        sys.exit(f"stale in {TARGETS}: {', '.join(stale)}; run `make clients`")


if __name__ == "__main__":
    main()
