"""Fonts: finds those that have the letters of a picture, such as Hangul."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib import font_manager
from matplotlib.font_manager import FontEntry

from seqserve.errors import SeqserveError

DEFAULT = "DejaVu Sans"
"""It comes with matplotlib, so a picture without other letters is the same everywhere."""
# Has a box for every letter there is.
_LAST_RESORT = "Last Resort"


class FontError(SeqserveError):
    """No font of this machine has a letter."""


def families_for(letters: Iterable[str]) -> list[str]:
    """Lists the families whose fonts together have all letters, the usual one first.

    Raises:
        FontError: A letter is in no font; the message says what to install.
    """
    missing = {ord(letter) for letter in letters if letter.isprintable()}
    missing -= _letters_of(font_manager.findfont(DEFAULT))
    families = [DEFAULT]
    for entry in _others() if missing else []:
        if covered := missing & _letters_of(entry.fname):
            families.append(entry.name)
            missing -= covered
        if not missing:
            break
    if missing:
        shown = " ".join(chr(code) for code in sorted(missing)[:5])
        raise FontError(
            f"no font of this machine has {shown}; install one that does (for Korean, Chinese and"
            " Japanese: fonts-noto-cjk, for Korean alone fonts-nanum), or name a picture that ends"
            " in .svg, whose text is drawn with the fonts of who looks at it"
        )
    return families


def _others() -> list[FontEntry]:
    """Lists upright fonts of the usual weight first, in an order that is the same at every run."""
    entries = (
        entry
        for entry in font_manager.fontManager.ttflist
        if not entry.name.startswith(_LAST_RESORT)
    )
    return sorted(
        entries, key=lambda entry: (entry.style != "normal", str(entry.weight) != "400", entry.name)
    )


def _letters_of(path: str) -> set[int]:
    return set(font_manager.get_font(path).get_charmap())
