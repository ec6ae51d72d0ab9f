"""Korean particles: which of two forms stands, by the last syllable of the word before.

A syllable of Unicode is 0xAC00 + (initial x 21 + vowel) x 28 + final (The Unicode Standard, 3.12).
"""

from __future__ import annotations

import re

FINALS = 28
L = 8
"""The final ㄹ."""

_FIRST, _LAST = "가", "힣"
_PARTICLES = re.compile(
    r"(.)(이에요/예요|이라고/라고|이야/야|이다/다|으로/로|을/를|이/가|은/는|과/와)"
)


def final_of(text: str) -> int:
    """Gives the final consonant of the last syllable; 0 for none."""
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
