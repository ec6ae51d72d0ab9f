"""Korean particles, verbs and adjectives.

A syllable of Unicode is 0xAC00 + (initial x 21 + vowel) x 28 + final (The Unicode Standard, 3.12).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
