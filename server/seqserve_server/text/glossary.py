"""Glossaries: their entries, the ones that a text contains, and which of them a request names.

Whole words match, at most as many as an entry may have, so a search takes time in proportion to the
text, whatever the text is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import eq
from typing import Any, NamedTuple, TypeAlias

from seqserve.language_codes import Language, folded
from seqserve.v1 import generation_pb2
from seqserve.words import MAX_ENTRIES, words_of
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import InvalidRequest, truncated_list

Term = generation_pb2.Term

OPTION = "--glossaries"
# Tag and length of an entry on the wire, at most.
_TAG_BYTES = 4

_Trie: TypeAlias = dict[str, Any]
"""Terms by their words: the next word leads on, the empty one to the term that ends there."""


class GlossaryError(ValueError):
    """A file is not a glossary; the message says where and why."""


class Label(NamedTuple):
    """Identity of a glossary."""

    name: str
    source: str
    """Code of the source language."""
    target: str
    """Code of the target language."""


class TermIndex:
    """Terms by the words of their sources."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self._exact: _Trie = {}
        self._folded: _Trie = {}
        for term in terms:
            is_small = term.source == term.source.lower()
            trie = self._folded if is_small else self._exact
            for word in _words(term.source):
                trie = trie.setdefault(word.text.casefold() if is_small else word.text, {})
            trie.setdefault("", term)

    def terms_in(self, text: str) -> list[Term]:
        """Lists a text's terms, the longest of overlapping ones; small letters match any case."""
        words = _words(text)
        longest_first = sorted(self._matches(words), key=lambda each: (-each.length, each.begin))
        taken = bytearray(len(words))
        terms: dict[int, Term] = {}
        for match in longest_first:
            if not any(taken[match.begin : match.end]):
                taken[match.begin : match.end] = b"\1" * (match.end - match.begin)
                terms.setdefault(id(match.term), match.term)
        return list(terms.values())

    def _matches(self, words: Sequence[_Word]) -> Iterator[_Match]:
        exact = [word.text for word in words]
        folded = [word.casefold() for word in exact]
        for begin, word in enumerate(words):
            if not word.may_begin:
                continue
            ends = _longest(self._exact, exact, begin), _longest(self._folded, folded, begin)
            end, term = max(ends, key=lambda each: each[0])
            if term is not None:
                yield _Match(begin, end, words[end - 1].end - word.begin, term)


class Glossary(TermIndex):
    """The terms of one source and one target language."""

    def __init__(self, label: Label, entries: Sequence[Term], modified_s: int = 0) -> None:
        if not 1 <= len(entries) <= MAX_ENTRIES:
            reason = f"has {len(entries):,} entries for {label.source} and {label.target}"
            raise GlossaryError(f"{reason}; a glossary has 1 to {MAX_ENTRIES:,}")
        self.label, self.entries, self.modified_s = label, entries, modified_s
        self.num_bytes = sum(entry.ByteSize() + _TAG_BYTES for entry in entries)
        """Most bytes of the entries on the wire."""
        super().__init__(entries)


class Glossaries:
    """The glossaries that requests may name."""

    def __init__(self) -> None:
        self.listed: list[Glossary] = []
        """All of them, by name and languages."""

    def of_request(
        self, options: generation_pb2.GenerationOptions, template: Template | None
    ) -> Glossary | None:
        """Finds the glossary that a request names, for its languages or its model's."""
        if not options.glossary:
            return None
        source, target = (
            getattr(options, f"{role}_language") or (next(iter(known)) if len(known) == 1 else "")
            for role, known in (template or Template()).languages.items()
        )
        return self.find(options.glossary, source, target)

    def find(
        self, name: str, source: str, target: str, field: str = "options.glossary"
    ) -> Glossary:
        """Finds the glossary of a name for two languages, whose codes may be empty."""
        glossaries = self.listed
        named = [glossary for glossary in glossaries if glossary.label.name == name]
        if not named:
            names = sorted({glossary.label.name for glossary in glossaries})
            known = f"available: {truncated_list(names)}" if names else f"it has none ({OPTION})"
            raise InvalidRequest(field, f"{name!r:.80} is not a glossary of the server; {known}")
        wanted = [(folded(code), index) for index, code in enumerate((source, target), 1) if code]
        for fits in (eq, Language.may_be):
            choices = [
                glossary
                for glossary in named
                if all(fits(code, folded(glossary.label[index])) for code, index in wanted)
            ]
            if len(choices) == 1:
                return choices[0]
        pairs = truncated_list(f"{each.label.source} to {each.label.target}" for each in named)
        languages = f"{source or 'any language'} to {target or 'any language'}"
        raise InvalidRequest(field, f"{name!r:.80} is for {pairs}; the request is for {languages}")


class _Word(NamedTuple):
    text: str
    begin: int
    end: int
    may_begin: bool
    """Whether a term may begin with it."""


class _Match(NamedTuple):
    """A term in a text; ``begin`` and ``end`` count words, ``length`` characters."""

    begin: int
    end: int
    length: int
    term: Term


def _longest(trie: _Trie, words: Sequence[str], begin: int) -> tuple[int, Term | None]:
    end, term = begin, None
    for place in range(begin, len(words)):
        if (following := trie.get(words[place])) is None:
            break
        trie = following
        if "" in trie:
            end, term = place + 1, trie[""]
    return end, term


def _words(text: str) -> list[_Word]:
    return [_Word(word[0], *word.span(), word["within"] is None) for word in words_of(text)]
