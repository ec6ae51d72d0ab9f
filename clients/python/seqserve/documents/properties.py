r"""Java's ``.properties``: values are texts, and messages of ``MessageFormat`` where they have
arguments.

Sources: the documentation of java.util.Properties, ``load(Reader)``, and of
java.text.MessageFormat, "Patterns and Their Interpretation".
"""

import re
from collections.abc import Iterator
from functools import cache

from seqserve.documents.inline import passages
from seqserve.documents.messages import message_pieces
from seqserve.documents.passage import Lines, Passage, joined_passages
from seqserve.documents.syntax import IN_C, UNICODE, Syntax, backslashes

_END = r"(?:\r\n|\r|\n)"
_SPACE = rf"(?:[ \t\f]|\\{_END})*+"
_ESCAPED = r"\\(?:\r\n|[\s\S])"
_ENTRY = re.compile(
    rf"{_SPACE}(?:[#!][^\r\n]*+|(?:\\{_END}[ \t\f]*+|{_ESCAPED}|[^\\=: \t\f\r\n])*+{_SPACE}"
    rf"(?:(?P<mark>[=:]){_SPACE})?(?P<value>(?:{_ESCAPED}|[^\\\r\n])*+))\\?(?:{_END}|\Z)"
)
# The end of a value, from its end: lines that go on in one that says nothing.
_IDLE = re.compile(r"(?:[ \t\f]*+(?:\n\r?|\r)\\)*+")
_PLAIN = rf"{UNICODE}|\\{_END}[ \t\f]*+|\\."
_QUOTED = r"'[{}][^']*+'"
_ESCAPE = re.compile(_PLAIN)
_ESCAPE_OF_MESSAGE = re.compile(rf"{_PLAIN}|{_QUOTED}|''")
_LETTERS = {letter: IN_C[letter] for letter in "nrtf"}
_WRITTEN = {value: rf"\{letter}" for letter, value in _LETTERS.items()}
_ARGUMENT = re.compile(r"\{\d+[},]")


def parse(lines: Lines) -> Iterator[Passage]:
    r"""Yields a passage for each value, or for each branch of a choice.

    A value with an argument such as ``{0}`` is a message, in which an apostrophe is two; so are all
    values of a document where one without an argument has two. Characters are written as ``\uXXXX``
    where the document has none of their kind: outside of ASCII, or of ISO 8859-1.
    """
    return joined_passages(_parts("".join(lines)))


def _parts(source: str) -> Iterator[str | Passage]:
    highest = max(source, default="")
    last = "\x7f" if highest <= "\x7f" else "\xff" if highest <= "\xff" else "\U0010ffff"
    entries = [entry for entry in _ENTRY.finditer(source) if entry["value"]]
    values = [_without_idle_lines(entry["value"]) for entry in entries]
    are_messages = any("''" in value and not _ARGUMENT.search(value) for value in values)
    end = 0
    for entry, value in zip(entries, values, strict=True):
        is_message = are_messages or _ARGUMENT.search(value) is not None
        syntax = _syntax(last, is_message, not entry["mark"])
        yield source[end : entry.start("value")]
        yield from passages(
            [*message_pieces(value, syntax, others=_QUOTED if is_message else "")], syntax
        )
        end = entry.start("value") + len(value)
    yield source[end:]


def _without_idle_lines(value: str) -> str:
    idle = _IDLE.match(value[::-1])
    return value[: len(value) - idle.end()] if idle else value


@cache
def _syntax(last: str, is_message: bool, is_unmarked: bool) -> Syntax:
    escape = _ESCAPE_OF_MESSAGE if is_message else _ESCAPE
    # Behind a key and a space they would be no text.
    first = "|^[=:]" if is_unmarked else ""
    special = re.compile(rf"[\\\n\t\r\f]{first}|[^\x00-{re.escape(last)}]")

    def write(text: str) -> str:
        text = text.replace("'", "''") if is_message else text
        return special.sub(lambda match: _written(match[0]), text)

    # A line that goes on in the next one says nothing.
    letters = _LETTERS | {"\r": "", "\n": ""}
    syntax = backslashes(escape, special, letters, {}, lambda raw: "'" if raw == "''" else raw)
    return syntax._replace(write=write)


def _written(character: str) -> str:
    if character <= "\x7f":
        return _WRITTEN.get(character, f"\\{character}")
    code = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(rf"\u{code[at : at + 4]}" for at in range(0, len(code), 4))
