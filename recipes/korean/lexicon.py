"""English words: their inflection, and the random choice of words from everyday.toml."""

import random
import re
from typing import Any

from recipes.korean.hangul import Verb

ARTICLE = re.compile(r"^(an?|the) ")
PLURAL_SUBJECTS = {"I", "you", "we", "they", "the children"}
DOUBLED = {"get", "run", "swim", "sit", "put", "cut", "stop", "plan"}


def bare(noun: str) -> str:
    """Removes the article of a noun."""
    return ARTICLE.sub("", noun)


def is_plural(noun: str) -> bool:
    """Returns whether a noun is a plural: it has no article and ends with s."""
    return not ARTICLE.match(noun) and noun.endswith("s") and not noun.endswith("ss")


def plural(noun: str) -> str:
    """Returns the plural of what can be counted, and what cannot as it is."""
    word = bare(noun)
    if word == noun:
        return noun
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x", "to")) else "s")


def be(subject: str, *, many: bool) -> str:
    """Conjugates "be"."""
    if subject == "I":
        return "am"
    return "are" if many else "is"


def third_person(verb: str) -> str:
    """Conjugates for he, she and it."""
    irregular = {"have": "has", "do": "does", "go": "goes"}
    if verb in irregular:
        return irregular[verb]
    if verb.endswith(("s", "sh", "ch", "x")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeou":
        return verb[:-1] + "ies"
    return verb + "s"


def progressive(verb: str) -> str:
    """Returns the form with -ing."""
    if verb in DOUBLED:
        return verb + verb[-1] + "ing"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + "ing"


def described(thing: str, trait: str, degree: str, mood: str, *, many: bool) -> str:
    """Says, denies or asks that a thing is of some kind; a trait may have a verb: tastes good."""
    if trait.startswith("tastes "):
        rest = trait.removeprefix("tastes ")
        do = "do" if many else "does"
        return {
            "now": f"{thing} {'taste' if many else 'tastes'} {rest}.",
            "past": f"{thing} tasted {rest}.",
            "not": f"{thing} {do}n't taste {rest}.",
            "asked": f"{do} {thing} taste {rest}?",
        }[mood]
    am = be(thing, many=many)
    was = "were" if many and thing != "I" else "was"
    return {
        "now": f"{thing} {am} {degree}{trait}.",
        "past": f"{thing} {was} {degree}{trait}.",
        "not": f"{thing} {am} not {trait}.",
        "asked": f"{am} {thing} {trait}?",
    }[mood]


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
