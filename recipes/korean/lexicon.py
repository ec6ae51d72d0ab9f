"""The words and patterns of everyday.toml, and how they are drawn."""

import random
import re
from typing import Any

from recipes.korean.english import bare, plural
from recipes.korean.hangul import Verb

SLOT = re.compile(r"\{(\w+)[:+]?\}")
STATES = ("있다", "없다", "싶다")
"""Verbs that are conjugated as adjectives."""
Pair = tuple[str, str]
"""English and Korean."""


class Lexicon:
    """Draws words and fills them into patterns."""

    def __init__(self, words: dict[str, Any], draw: random.Random) -> None:
        self._draw = draw
        self.nouns = {name: _entries(text) for name, text in words["nouns"].items()}
        self.times = {name: _entries(text) for name, text in words["time"].items()}
        self.subjects = _patterns(words["people"]["subjects"], 2)
        self.owners = _patterns(words["people"]["owners"])
        self.humble = dict(_entries(words["people"]["humble"]))
        self.requests = list(words["requests"].items())
        self.past = dict(entry.split("=") for entry in words["english"]["past"].split())
        self.verbs = {
            form: Verb.of(form, forms, is_adjective=kind == "adjectives" or form in STATES)
            for kind in ("verbs", "adjectives")
            for form, forms in (entry.split("=") for entry in words["korean"][kind].split())
        }
        self.actions = _patterns(words["actions"]["phrases"])
        self.states = _patterns(words["actions"]["states"])
        self.descriptions = _patterns(words["descriptions"]["phrases"])
        self.traits = _patterns(words["descriptions"]["people"])
        self.sentences = _patterns(words["sentences"]["phrases"])

    def filled(self, pattern: Pair, barred: str = "") -> Pair:
        """Puts nouns into the slots; the same noun on both sides."""
        english, korean = pattern
        for name in dict.fromkeys(match[1] for match in SLOT.finditer(english + korean)):
            said, spoken = self.noun(name, barred)
            if said.startswith(("a ", "an ")) and self._draw.random() < 0.3:
                said = f"the {bare(said)}"
            english = english.replace(f"{{{name}}}", said).replace(f"{{{name}:}}", bare(said))
            english = english.replace(f"{{{name}+}}", plural(said))
            korean = korean.replace(f"{{{name}}}", spoken)
        return english, korean

    def noun(self, name: str, barred: str = "") -> Pair:
        """Draws a noun of a class, but not the barred one."""
        return self._draw.choice([noun for noun in self.nouns[name] if noun[0] != barred])

    def predicate(self, patterns: list[Pair], barred: str = "") -> tuple[str, str, Verb]:
        """Draws what one does: the English, the Korean before the verb, and the verb."""
        english, korean = self.filled(self._draw.choice(patterns), barred)
        before, _, form = korean.rpartition(" ")
        return english, before + " " if before else "", self.verbs[form]


def _entries(text: str) -> list[Pair]:
    pairs = (entry.strip().split("=") for entry in text.replace("\n", " ").split(","))
    return [(english, korean) for english, korean in pairs]


def _patterns(text: str, marks: int = 1) -> list[Any]:
    return [tuple(line.split(" = ", marks)) for line in text.strip().splitlines()]
