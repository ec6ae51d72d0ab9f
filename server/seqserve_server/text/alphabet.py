"""Characters and scripts that a vocabulary can spell, and the tokens for all others."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from tokenizers import decoders

# A vocabulary learnt from the Web has a few tokens of many scripts that its model cannot read.
_KNOWN_SHARE = 0.002
# Tokens of byte-level vocabularies are spelled with a character for each byte.
_BYTE_LEVEL_SPACE = "\u0120"
# Characters whose script is remembered; callers choose which ones they send.
_MAX_CACHED = 10_000


class Alphabet(NamedTuple):
    """The characters and scripts of a vocabulary, and its tokens for characters that it lacks."""

    characters: frozenset[str]
    """Characters that a token has, not only bytes of them; all characters if it is empty."""
    scripts: frozenset[str]
    """Scripts that at least two in a thousand tokens have a letter of, by :func:`script_of`."""
    unknown_ids: frozenset[int]
    """The unknown token, and the tokens of single bytes."""

    @classmethod
    def of(cls, vocabulary: Mapping[int, str], unknown_ids: frozenset[int]) -> Alphabet:
        """Counts the scripts of the tokens of a vocabulary."""
        words = [token for id_, token in vocabulary.items() if id_ not in unknown_ids]
        is_byte_level = any(word.startswith(_BYTE_LEVEL_SPACE) for word in words)
        if is_byte_level:
            decoder = decoders.ByteLevel()
            words = [decoder.decode([word]) for word in words]
        characters = frozenset(" ").union(*words) - {"\N{REPLACEMENT CHARACTER}"}
        if is_byte_level and all(map(str.isascii, characters)):
            # Other characters are bytes to such a model, as to ByT5.
            characters = frozenset()
        counts = Counter(script for word in words for script in set(map(script_of, word)))
        scripts = {script for script, count in counts.items() if count >= _KNOWN_SHARE * len(words)}
        return cls(characters, frozenset(scripts) - {""}, unknown_ids)

    def spells(self, text: str) -> bool:
        """Tells whether the vocabulary has all characters of a text."""
        return not self.characters or self.characters.issuperset(text)


@lru_cache(_MAX_CACHED)
def script_of(character: str) -> str:
    """Returns the script of a letter, such as ``LATIN``, or nothing for what is no letter.

    Python has no property of scripts, so this is the first word of the letter's Unicode name. That
    is right for all letters that texts consist of; ordinal indicators, for example, count as a
    script of their own.
    """
    return unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
