"""The language pairs of models, and the models that translate a pair.

One model translates a pair, or two by a pivot: the first writes a language that the second reads.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import NamedTuple, TypeAlias

from seqserve.language_codes import Language, folded
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import MAX_LISTED, InvalidRequest, truncated_list

_MAX_KNOWN = 4096
_PREFERRED_PIVOT = "en"
"""Most models are made from or to English, so they know it best."""


class Translator(NamedTuple):
    """A model, and the languages that it declares."""

    name: str
    template: Template


class Leg(NamedTuple):
    """One model on the way from a source to a target language."""

    model: str
    source: str
    """Code of the language that it reads; empty if the request names none."""
    target: str
    """Code of the language that it writes; empty if the request names none."""


Legs: TypeAlias = tuple[Leg, ...]
"""One leg, or the two of a pivot."""


class Pairs:
    """The models that declare languages, in the order in which calls prefer them.

    The default model comes first, then those that serve the fewest pairs, because a model of one
    pair mostly knows it better than one of many; then names decide.
    """

    def __init__(self, translators: Iterable[Translator], default: str = "") -> None:

        def rank(each: Translator) -> tuple[bool, int, str]:
            num_pairs = math.prod(map(len, each.template.languages.values()))
            return each.name != default, num_pairs, each.name

        known = (each for each in translators if any(each.template.languages.values()))
        self._translators = sorted(known, key=rank)
        self._default = default
        self._known: dict[tuple[str, str], Legs] = {}
        self._links: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def legs(self, source: str, target: str, section: str = "options.") -> Legs:
        """Finds the models for the languages of a request, one of which may be empty.

        With one code, the default model serves the request if it knows that language, or else the
        only model that does. If no model declares languages, any may serve the request, and the
        result is empty. Errors have ``section`` before the names of the fields.
        """
        if not self._translators:
            return ()
        legs = self._known.get((source, target))
        if legs is None:
            legs = self._direct(source, target) or self._pivot(source, target)
            if not legs:
                raise self._refusal(source, target, section)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[source, target] = legs
        return legs

    def all(self) -> Iterator[tuple[str, str, Legs]]:
        """Yields the source, the target and the legs of every pair; direct ones first."""
        node_of = self._nodes()
        seen = set()
        alone = [(each, each) for each in self._translators]
        two = (
            (first, second)
            for first, second in product(self._translators, repeat=2)
            if first is not second and self._pivots(first, second)
        )
        for first, second in (*alone, *two):
            codes = first.template.source_languages, second.template.target_languages
            for source, target in product(*codes):
                pair = node_of[source], node_of[target]
                if pair in seen or pair[0] == pair[1]:
                    continue
                if legs := self._direct(source, target) or self._pivot(source, target):
                    seen.add(pair)
                    yield source, target, legs

    def sources(self, target: str = "") -> list[str]:
        """Lists a code for each source language.

        The language ``target`` is left out unless it is the only one, or a model rewrites it.
        """
        node_of = self._nodes()
        codes = {
            node_of[source]: source
            for translator in reversed(self._translators)
            for source in translator.template.source_languages
        }
        others = [
            code
            for code in codes.values()
            if not folded(code).may_be(folded(target)) or self._direct(code, target)
        ]
        return sorted(others or codes.values())

    def _direct(self, source: str, target: str) -> Legs:
        legs = [leg for each in self._translators if (leg := _leg(each, source, target))]
        is_clear = len(legs) == 1 or (source and target)
        # Where one language is missing, nothing but the default tells which model is meant.
        if legs and (is_clear or legs[0].model == self._default):
            return (legs[0],)
        return ()

    def _pivot(self, source: str, target: str) -> Legs:
        """Finds two models; English goes before other pivots, then preferred models do."""
        if not (source and target) or folded(source).may_be(folded(target)):
            return ()
        best: tuple[tuple[bool, int, int, str], Legs] | None = None
        sides = list(enumerate(self._translators))
        readers = [(rank, each, c) for rank, each in sides if (c := _code(each, "source", source))]
        writers = [(rank, each, c) for rank, each in sides if (c := _code(each, "target", target))]
        for (rank, first, read), (next_rank, second, written) in product(readers, writers):
            ends = [folded(code) for code in (source, read, written, target)]
            for pivot, again in self._pivots(first, second):
                language = folded(pivot)
                if any(map(language.may_be, ends)):
                    continue
                key = (language.name != _PREFERRED_PIVOT, rank, next_rank, pivot)
                legs = Leg(first.name, read, pivot), Leg(second.name, again, written)
                if best is None or key < best[0]:
                    best = key, legs
        return best[1] if best else ()

    def _pivots(self, first: Translator, second: Translator) -> list[tuple[str, str]]:
        names = first.name, second.name
        if names not in self._links:
            self._links[names] = [
                (code, again)
                for code in first.template.target_languages
                if (again := _code(second, "source", code))
            ]
        return self._links[names]

    def _nodes(self) -> dict[str, Language]:
        """Folds every code; the script counts only where a language has several."""
        languages = {
            code: folded(code)
            for translator in self._translators
            for codes in translator.template.languages.values()
            for code in codes
        }
        scripts: dict[str, set[str]] = {}
        for language in languages.values():
            scripts.setdefault(language.name, set()).add(language.script)
        return {
            code: language
            if len(scripts[language.name] - {""}) > 1
            else Language(language.name, "")
            for code, language in languages.items()
        }

    def _refusal(self, source: str, target: str, section: str) -> InvalidRequest:
        for role, code, verb in (("source", source, "reads"), ("target", target, "writes")):
            known = sorted({c for each in self._translators for c in each.template.languages[role]})
            if code and not any(_code(each, role, code) for each in self._translators):
                reason = f"no model {verb} {code!r:.80}; the models know {truncated_list(known)}"
                return InvalidRequest(f"{section}{role}_language", reason)
        if not (source and target):
            role = "target" if source else "source"
            reason = f"is missing; several models serve {source or target!r:.80}: {self._pairs()}"
            return InvalidRequest(f"{section}{role}_language", reason)
        reason = f"no model, and no two, turn {source!r:.80} into {target!r:.80}; {self._pairs()}"
        return InvalidRequest(f"{section}target_language", reason)

    def _pairs(self) -> str:
        pairs = (f"{source} to {target}" for source, target, _ in self.all())
        # To count all of them takes long.
        first = list(islice(pairs, MAX_LISTED + 1))
        more = " and more" if len(first) > MAX_LISTED else ""
        return f"available: {', '.join(first[:MAX_LISTED])}{more}"


def _leg(translator: Translator, source: str, target: str) -> Leg | None:
    codes = {"source": source, "target": target}
    own = {role: _code(translator, role, code) for role, code in codes.items() if code}
    if not all(own.values()):
        return None
    return Leg(translator.name, own.get("source") or "", own.get("target") or "")


def _code(translator: Translator, role: str, code: str) -> str | None:
    return translator.template.code_of(role, code)
