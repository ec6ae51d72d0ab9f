"""Reads files of glossaries: tab-separated values, and TBX, the exchange format of terminology.

A line of tab-separated values has a source, a tab and its target. In TBX (ISO 30042:2008 and
ISO 30042:2019) an entry is a concept, with its terms in each language. Expat reads no other file;
entities, which could grow without bound, are refused.
"""

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import NamedTuple
from xml.parsers import expat

from seqserve.language_codes import Language, folded
from seqserve.words import MAX_ENTRIES, entries_of, fault_of_term
from seqserve_server.text.glossary import GlossaryError, Label, Term

# Names in the second edition, which are the first of each, and in the third.
_ROOTS = {"martif", "tbx"}
_CONCEPTS = {"termEntry", "conceptEntry"}
_LANGUAGES = {"langSet", "langSec"}
_TERM_PARTS = {"tig", "ntig", "termSec"}
_STATUS = "administrativeStatus"
_TEXTS = {"term", "termNote", _STATUS}
_MAX_DEPTH = 64
_RANKS = {
    "preferredTerm-admn-sts": 0,
    "admittedTerm-admn-sts": 1,
    "deprecatedTerm-admn-sts": 2,
    "supersededTerm-admn-sts": 2,
}


_TOO_MANY = f"is one entry too many; a glossary has 1 to {MAX_ENTRIES:,}"


class _Word(NamedTuple):
    text: str
    status: str

    @property
    def rank(self) -> int:
        """0 for one that is preferred, 2 for one that should not be written."""
        return _RANKS.get(self.status, 1)


def tsv_entries(content: bytes) -> list[Term]:
    """Reads the entries; blank lines, and those that begin with ``#``, are left out."""
    try:
        entries = entries_of(_rows(content))
    except ValueError as error:
        raise GlossaryError(str(error)) from None
    return [Term(source=source, target=target) for source, target in entries.items()]


def _rows(content: bytes) -> Iterator[list[str]]:
    for number, encoded in enumerate(BytesIO(content.removeprefix(BOM_UTF8)), 1):
        try:
            line = encoded.decode()
        except UnicodeDecodeError:
            raise GlossaryError(f"line {number}: is not UTF-8") from None
        yield [] if line.startswith("#") else line.split("\t")


def tbx_entries(content: bytes, label: Label) -> list[Term]:
    """Reads the entries of two languages.

    Every source term of a concept is an entry, with the preferred target term, or else the first
    that is neither deprecated nor superseded. Of equal sources the first one counts.
    """
    reader = _Reader(folded(label.source), folded(label.target))
    try:
        reader.parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = f"is not well-formed XML: {expat.ErrorString(error.code)}"
        raise GlossaryError(f"line {error.lineno}: {reason}") from None
    except GlossaryError:
        raise
    except (LookupError, ValueError) as error:
        raise GlossaryError(f"line 1: has an encoding that is not read: {error}") from None
    return [Term(source=source, target=target) for source, target in reader.targets.items()]


class _Reader:
    def __init__(self, source: Language, target: Language) -> None:
        self.targets: dict[str, str] = {}
        self.parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._write
        parser.EntityDeclHandler = parser.SkippedEntityHandler = self._refuse_entity
        self._languages = {"source": source, "target": target}
        self._depth = 0
        self._role = ""
        self._words: dict[str, list[_Word]] = {}
        self._parts: dict[str, str] = {}
        """The term that is read now, by an empty key, and its notes by their kinds."""
        self._written: str | None = None
        """Kind of the note that the text belongs to which comes now; empty for a term, None for
        neither."""

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        name = _local(name)
        if not self._depth and name not in _ROOTS:
            raise self._fault(f"has the root {name!r:.80}; TBX has martif or tbx")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._fault(f"has an element within {_MAX_DEPTH} others")
        if name in _CONCEPTS:
            self._words = {role: [] for role in self._languages}
        elif name in _LANGUAGES:
            self._role = self._role_of(attributes)
        elif name in _TERM_PARTS:
            self._parts = {}
        elif name in _TEXTS:
            self._written = "" if name == "term" else attributes.get("type", _STATUS)
            self._parts[self._written] = ""

    def _end(self, name: str) -> None:
        name = _local(name)
        self._depth -= 1
        if name in _CONCEPTS:
            self._add_concept()
        elif name in _LANGUAGES:
            self._role = ""
        elif name in _TERM_PARTS:
            text = " ".join(self._parts.get("", "").split())
            if self._role and text:
                word = _Word(text, self._parts.get(_STATUS, "").strip())
                words = self._words.setdefault(self._role, [])
                words.append(word)
                if len(words) > MAX_ENTRIES:
                    raise self._fault(_TOO_MANY)
        elif name in _TEXTS:
            self._written = None

    def _write(self, text: str) -> None:
        if self._written is not None:
            self._parts[self._written] = self._parts.get(self._written, "") + text

    def _add_concept(self) -> None:
        sources, targets = self._words["source"], self._words["target"]
        allowed = [word for word in targets if word.rank < 2]
        if not allowed:
            return
        target = min(allowed, key=lambda word: word.rank).text
        for word in sources:
            if fault := fault_of_term(word.text, target):
                raise self._fault(f"has an entry whose {fault}")
            self.targets.setdefault(word.text, target)
            if len(self.targets) > MAX_ENTRIES:
                raise self._fault(_TOO_MANY)

    def _role_of(self, attributes: Mapping[str, str]) -> str:
        code = attributes.get("http://www.w3.org/XML/1998/namespace lang", "")
        language = folded(code)
        roles = (role for role, each in self._languages.items() if language.may_be(each))
        return next(roles, "")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise self._fault(f"has the entity {name!r:.80}; write its text instead")

    def _fault(self, reason: str) -> GlossaryError:
        return GlossaryError(f"line {self.parser.CurrentLineNumber}: {reason}")


def _local(name: str) -> str:
    # Without its namespace.
    return name.rpartition(" ")[2]
