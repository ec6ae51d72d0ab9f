"""Codes of languages, which have several forms: ``en``, ``eng``, ``en-US``, ``eng_Latn``.

A code is folded by rule, without a library: subtags are divided by ``-`` or ``_``, and case does
not count (BCP 47, RFC 5646, section 2.1). A language has its two-letter code of ISO 639-1 if it has
one. A subtag of four letters is the script. A region is left out, except for Chinese, where it
determines the script.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

AUTO = "auto"
"""Stands for the language that the server detects."""
_MAX_CHARACTERS = 35
"""Maximum length of a code; RFC 5646, section 4.4.1."""


class Language(NamedTuple):
    """A language, whatever form its code has."""

    name: str
    """Code of ISO 639, in two letters if it has a short form."""
    script: str
    """Code of ISO 15924, such as ``Hans``; empty if the language code has none."""

    def may_be(self, other: Language) -> bool:
        """Returns whether two codes may mean one language: their scripts do not contradict."""
        is_same_script = self.script == other.script or not (self.script and other.script)
        return self.name == other.name and is_same_script


def folded(code: str) -> Language:
    """Folds a code; one that is too long to be a code stays as it is."""
    # Not kept: a client may send as long a text as a message.
    return _folded(code) if len(code) <= _MAX_CHARACTERS else Language(code, "")


@lru_cache(1 << 12)
def _folded(code: str) -> Language:
    name, *rest = re.split("[-_]", code)
    name = name.lower()
    name = _ISO_639_1.get(name, name)
    script = next((subtag.title() for subtag in rest if len(subtag) == 4), "")
    if name == "zh" and not script:
        regions = (_CHINESE.get(subtag.upper(), "") for subtag in rest)
        script = next(filter(None, regions), "")
    return Language(name, script)


def code_among(code: str, known: Collection[str], aliases: Mapping[str, str]) -> str | None:
    """Finds the code that means the same language.

    The code itself comes first, then the one that it is an alias of. Then come codes of the same
    language and script, those without a region first, then those that may be the same.

    Returns:
        One of the known codes; None if none of them means this language, or several do.
    """
    if code in known:
        return code
    if aliases.get(code) in known:
        return aliases[code]
    wanted = folded(code)
    similar = [other for other in known if wanted.may_be(folded(other))]
    equal = [other for other in similar if folded(other) == wanted]
    plain = [other for other in equal if other.isalpha()]
    for codes in (plain, equal, similar):
        if len(codes) == 1:
            return codes[0]
    return None


_CHINESE = {"CN": "Hans", "SG": "Hans", "TW": "Hant", "HK": "Hant", "MO": "Hant"}

# Three letters of ISO 639-2 or 639-3, then the two of ISO 639-1. Where 639-3 divides a language,
# the form that models mean by its name is here too: arb, pes, zsm.
_CODES = Path(__file__).with_suffix(".txt").read_text(encoding="ascii").split()
_ISO_639_1 = {code[:3]: code[3:] for code in _CODES}
