"""Strings of apps: ``strings.xml`` of Android, ``.strings`` of Apple's systems, ``.resx`` of .NET,
and Java's ``.properties``, whose values with arguments are messages of ``MessageFormat``.

Sources: https://developer.android.com/guide/topics/resources/string-resource;
https://developer.apple.com/library/archive/documentation/Cocoa/Conceptual/LoadingResources/,
"String Resources"; the documentation of java.util.Properties, ``load(Reader)``, and of
java.text.MessageFormat, "Patterns and Their Interpretation".
"""

import html
import re
from collections.abc import Callable, Iterator
from functools import cache

from seqserve.documents.inline import passages
from seqserve.documents.messages import message_pieces, pieces
from seqserve.documents.passage import Lines, ParseError, Passage, joined_passages
from seqserve.documents.pieces import Kind, Piece
from seqserve.documents.syntax import IN_C, UNICODE, Syntax, backslashes
from seqserve.documents.xml_source import ENTITY, REFERENCE, Node, Role, escaped
from seqserve.documents.xml_text import Table

# A resource, whose name replaces a text.
_RESOURCE = re.compile(r"\s*[@?][\w.:/+-]+\s*")
# And line ends, which mean a space.
_BACKSLASH = rf"{UNICODE}|\\.|\"|(?<![ \t])[ \t]*+[\r\n]\s*+"
_ANDROID_CHARACTERS = {"n": "\n", "t": "\t"}
_ANDROID_SPECIAL = re.compile(r"[\\'\"\n\t]|^[@?]")
_ANDROID_WRITTEN = {"\n": r"\n", "\t": r"\t"}


def _role(node: Node, parent: Node) -> Role | None:
    if node.attributes.get("translatable") == "false":
        return Role.MARKED
    if node.name == "br" and not node.inner:
        return Role.STRUCTURE
    is_item = parent.name in ("string-array", "plurals") or node.attributes.get("type") == "string"
    if node.name != "string" and (node.name != "item" or not is_item):
        return None
    return Role.DATA if _RESOURCE.fullmatch(node.inner) else Role.BLOCK


def _android(escape: re.Pattern[str], around: Callable[[str], str]) -> Syntax:
    # Quotes without a backslash are not shown.
    syntax = backslashes(
        *(escape, _ANDROID_SPECIAL, _ANDROID_CHARACTERS, _ANDROID_WRITTEN),
        other=lambda raw: " " if raw.isspace() else html.unescape(raw).replace('"', ""),
    )
    return syntax._replace(write=lambda text: around(syntax.write(text)))


_ANDROID = _android(re.compile(rf"{REFERENCE}|{_BACKSLASH}", re.S), escaped)
_IN_CDATA = _android(re.compile(_BACKSLASH, re.S), lambda text: text.replace("]]>", "]] >"))


def _texts(raw: str, syntax: Syntax, *, is_alone: bool) -> Iterator[Piece]:
    is_quoted = is_alone and len(raw) > 1 and raw[0] == raw[-1] == '"' and raw[-2] != "\\"
    quote = [Piece(Kind.BREAK, '"')] * is_quoted
    yield from quote
    text = raw[1:-1] if is_quoted else raw
    yield from pieces(text, syntax, others=ENTITY, is_whole=is_alone)
    yield from quote


ANDROID = Table(
    root="resources",
    roles={"g": Role.PROTECTED},
    other=Role.INLINE,
    role=_role,
    texts=_texts,
    syntax=_ANDROID,
    in_cdata=_IN_CDATA,
)
"""Placeholders and tags, also ``xliff:g``, follow the words of a text. Resources with
``translatable="false"``, comments and names of other resources stay."""


_STRING = r'"(?:[^"\\]|\\.)*+"'
_SPACE = r"(?>\s|/\*.*?\*/|//[^\r\n]*)"
_ENTRY = re.compile(
    rf"{_SPACE}*+(?:\Z|(?:{_STRING}|(?:[\w.$-]|/(?![*/]))++){_SPACE}*+(?:={_SPACE}*+\"(?P<value>(?:[^\"\\]|\\.)*+)\"{_SPACE}*+)?;)",
    re.S,
)
_ESCAPE = re.compile(rf"{UNICODE}|\\[0-7]{{3}}|\\.", re.S)
_APPLE_SPECIAL = re.compile(r'["\\\n\r\t]')
_APPLE_WRITTEN = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_APPLE = backslashes(_ESCAPE, _APPLE_SPECIAL, IN_C, _APPLE_WRITTEN)


def parse_apple(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each value."""
    return passages([*_apple_pieces("".join(lines))], _APPLE)


def _apple_pieces(source: str) -> Iterator[Piece]:
    end = at = 0
    while at < len(source):
        entry = _ENTRY.match(source, at)
        if entry is None:
            behind = len(source) - len(source[at:].lstrip())
            line = source.count("\n", 0, behind) + 1
            raise ParseError(line, 'is not an entry "key" = "value"; of a .strings file')
        if entry["value"] is not None:
            yield Piece(Kind.BREAK, source[end : entry.start("value")])
            yield from pieces(entry["value"], _APPLE)
            end = entry.end("value")
        at = entry.end()
    yield Piece(Kind.BREAK, source[end:])


def _resx_role(node: Node, parent: Node) -> Role | None:
    if node.name != "value" or parent.name != "data":
        return None
    told = parent.attributes
    if told.keys() & {"type", "mimetype"} or told.get("name", "").startswith(">>"):
        # An object, or what the designer of a form keeps.
        return Role.DATA
    notes = (each.text for each in parent.elements() if each.name == "comment")
    return Role.MARKED if any("{Locked}" in note for note in notes) else Role.BLOCK


RESX = Table(
    root="root",
    roles={},
    role=_resx_role,
    texts=lambda raw, syntax, is_alone: pieces(raw, syntax, others=ENTITY, is_whole=is_alone),
)
"""The values that are texts; comments stay, and what a comment marks as ``{Locked}``."""


_EOL = r"(?:\r\n|\r|\n)"
_GAP = rf"(?:[ \t\f]|\\{_EOL})*+"
_PAIR = r"\\(?:\r\n|[\s\S])"
_PROPERTY = re.compile(
    rf"{_GAP}(?:[#!][^\r\n]*+|(?:\\{_EOL}[ \t\f]*+|{_PAIR}|[^\\=: \t\f\r\n])*+{_GAP}"
    rf"(?:(?P<mark>[=:]){_GAP})?(?P<value>(?:{_PAIR}|[^\\\r\n])*+))\\?(?:{_EOL}|\Z)"
)
# The end of a value, from its end: lines that go on in one that says nothing.
_IDLE = re.compile(r"\A(?:[ \t\f]*+(?:\n\r?|\r)\\)*+")
_PROPERTY_ESCAPE = rf"{UNICODE}|\\{_EOL}[ \t\f]*+|\\."
_QUOTED_BRACES = r"'[{}][^']*+'"
_VALUE_ESCAPE = re.compile(_PROPERTY_ESCAPE)
_MESSAGE_ESCAPE = re.compile(rf"{_PROPERTY_ESCAPE}|{_QUOTED_BRACES}|''")
_JAVA_LETTERS = {letter: IN_C[letter] for letter in "nrtf"}
_JAVA_WRITTEN = {value: rf"\{letter}" for letter, value in _JAVA_LETTERS.items()}
_ARGUMENT = re.compile(r"\{\d+[},]")


def parse_properties(lines: Lines) -> Iterator[Passage]:
    r"""Yields a passage for each value, or for each branch of a choice.

    A value with an argument such as ``{0}`` is a message, in which an apostrophe is two; so are all
    values of a document where one without an argument has two. Characters are written as ``\uXXXX``
    where the document has none of their kind: outside of ASCII, or of ISO 8859-1.
    """
    return joined_passages(_properties("".join(lines)))


def _properties(source: str) -> Iterator[str | Passage]:
    highest = max(source, default="")
    last = "\x7f" if highest <= "\x7f" else "\xff" if highest <= "\xff" else "\U0010ffff"
    entries = [entry for entry in _PROPERTY.finditer(source) if entry["value"]]
    values = [_IDLE.sub("", entry["value"][::-1], count=1)[::-1] for entry in entries]
    are_messages = any("''" in value and not _ARGUMENT.search(value) for value in values)
    end = 0
    for entry, value in zip(entries, values, strict=True):
        is_message = are_messages or _ARGUMENT.search(value) is not None
        syntax = _java(last, is_message, not entry["mark"])
        yield source[end : entry.start("value")]
        yield from passages(
            [*message_pieces(value, syntax, others=_QUOTED_BRACES if is_message else "")], syntax
        )
        end = entry.start("value") + len(value)
    yield source[end:]


@cache
def _java(last: str, is_message: bool, is_unmarked: bool) -> Syntax:
    escape = _MESSAGE_ESCAPE if is_message else _VALUE_ESCAPE
    # Behind a key and a space they would be no text.
    first = "|^[=:]" if is_unmarked else ""
    special = re.compile(rf"[\\\n\t\r\f]{first}|[^\x00-{re.escape(last)}]")

    def write(text: str) -> str:
        text = text.replace("'", "''") if is_message else text
        return special.sub(lambda match: _in_java(match[0]), text)

    # A line that goes on in the next one says nothing.
    letters = _JAVA_LETTERS | {"\r": "", "\n": ""}
    syntax = backslashes(escape, special, letters, {}, lambda raw: "'" if raw == "''" else raw)
    return syntax._replace(write=write)


def _in_java(character: str) -> str:
    if character <= "\x7f":
        return _JAVA_WRITTEN.get(character, f"\\{character}")
    code = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(rf"\u{code[at : at + 4]}" for at in range(0, len(code), 4))
