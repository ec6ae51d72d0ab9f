"""Words: Korean particles, verbs and adjectives, the inflection of English, and random choice.

A syllable of Unicode is 0xAC00 + (initial x 21 + vowel) x 28 + final (The Unicode Standard, 3.12).
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

FINALS = 28
N, L, B, SS = 4, 8, 17, 20  # the finals ㄴ, ㄹ, ㅂ and ㅆ
PLAIN, INFORMAL, POLITE, FORMAL = range(4)
_FIRST, _LAST = "가", "힣"
_PARTICLES = re.compile(
    r"(.)(이에요/예요|이라고/라고|이야/야|이다/다|으로/로|을/를|이/가|은/는|과/와)"
)


def final_of(text: str) -> int:
    """Returns the final consonant of the last syllable; 0 for none."""
    syllable = text[-1]
    return (ord(syllable) - ord(_FIRST)) % FINALS if _FIRST <= syllable <= _LAST else 0


def choose_particles(text: str) -> str:
    """Chooses between the two forms of each particle, ``을/를``, by the syllable before it."""

    def chosen(match: re.Match[str]) -> str:
        before, forms = match.groups()
        after_consonant, after_vowel = forms.split("/")
        final = final_of(before)
        is_vowel = final == 0 or (forms == "으로/로" and final == L)
        return before + (after_vowel if is_vowel else after_consonant)

    return _PARTICLES.sub(chosen, text)


def with_final(text: str, final: int) -> str:
    """Replaces the final consonant of the last syllable."""
    return text[:-1] + chr(ord(text[-1]) - final_of(text) + final)


@dataclass(frozen=True)
class Verb:
    """A verb or an adjective: its stem, its connective form, the form before -ㄹ, -ㄴ and -세요."""

    stem: str
    connective: str
    base: str
    is_adjective: bool

    @classmethod
    def of(cls, dictionary_form: str, forms: str, *, is_adjective: bool) -> Verb:
        """Reads a dictionary form and its connective form, "," and the base if it is irregular."""
        stem = dictionary_form.removesuffix("다")
        connective, _, base = forms.partition(",")
        regular = stem if final_of(stem) in (0, L) else stem + "으"
        return cls(stem, connective, base or regular, is_adjective)

    @property
    def before_l(self) -> str:
        """Returns the form of the future and of ability: 마실, 먹을, 살."""
        return with_final(self.base, L)

    @property
    def open_stem(self) -> str:
        """Returns the stem without ㄹ, which falls before ㄴ, ㅂ and ㅅ."""
        return with_final(self.stem, 0) if final_of(self.stem) == L else self.stem

    @property
    def open_base(self) -> str:
        """Returns the form before -세요 and -ㅂ시다."""
        return with_final(self.base, 0) if final_of(self.base) == L else self.base

    @property
    def proposal(self) -> str:
        """Returns the form before -시다."""
        return with_final(self.open_base, B)

    def present(self, level: int) -> str:
        """Conjugates: 마신다, 마셔, 마셔요, 마십니다."""
        if level == PLAIN and self.is_adjective:
            return self.stem + "다"
        if level == PLAIN:
            short = final_of(self.open_stem) == 0
            return with_final(self.open_stem, N) + "다" if short else self.stem + "는다"
        if level == FORMAL:
            short = final_of(self.open_stem) == 0
            return with_final(self.open_stem, B) + "니다" if short else self.stem + "습니다"
        return self.connective + ("요" if level == POLITE else "")

    def past(self, level: int) -> str:
        """Conjugates: 마셨다, 마셨어, 마셨어요, 마셨습니다."""
        return with_final(self.connective, SS) + ("다", "어", "어요", "습니다")[level]

    def future(self, level: int) -> str:
        """Conjugates: 마실 것이다, 마실 거야, 마실 거예요, 마실 것입니다."""
        return self.before_l + (" 것이다", " 거야", " 거예요", " 것입니다")[level]

    def asked(self, statement: str, level: int) -> str:
        """Makes a statement of this verb a question."""
        if level == FORMAL:
            return statement.removesuffix("다") + "까?"
        if level == PLAIN:
            return self.open_stem + "니?"
        return statement + "?"


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
    return noun if word == noun else _with_s(word, "to")


def _with_s(word: str, *others: str) -> str:
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x", *others)) else "s")


def be(subject: str, *, many: bool) -> str:
    """Conjugates "be"."""
    if subject == "I":
        return "am"
    return "are" if many else "is"


def third_person(verb: str) -> str:
    """Conjugates for he, she and it."""
    return {"have": "has", "do": "does", "go": "goes"}.get(verb) or _with_s(verb)


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
        return english, *self.divided(korean)

    def divided(self, korean: str) -> tuple[str, Verb]:
        """Divides what one does or is: the words before the verb, and the verb."""
        before, _, form = korean.rpartition(" ")
        return before and f"{before} ", self.verbs[form]


def _entries(text: str) -> list[Pair]:
    pairs = (entry.strip().split("=") for entry in text.replace("\n", " ").split(","))
    return [(english, korean) for english, korean in pairs]


def _patterns(text: str, marks: int = 1) -> list[Any]:
    return [tuple(line.split(" = ", marks)) for line in text.strip().splitlines()]
