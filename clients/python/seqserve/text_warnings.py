"""What is probably wrong with a source, or with the text of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SourceWarning(Enum):
    """Why a source is probably not what its model reads; the answer may be fluent nonsense."""

    UNSPECIFIED = "unspecified"
    """A reason that this client does not know."""
    UNKNOWN_CHARACTERS = "unknown_characters"
    """It has letters or symbols, such as emoji, that the vocabulary of the model lacks."""
    OTHER_SCRIPT = "other_script"
    """At least three in ten of its letters are of scripts that the vocabulary does not have."""
    MARKUP = "markup"
    """It has tags of HTML or XML; they are read as text."""


class TextWarningKind(Enum):
    """What may be wrong with a text."""

    UNSPECIFIED = "unspecified"
    """A kind that this client does not know."""
    NUMBERS_DIFFER = "numbers_differ"
    """A number, date, time or code of the source is missing or another one, or the text has one
    that the source lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWarning:
    """Something that is probably wrong with a text. Places count characters, in a segment from its
    own beginning."""

    kind: TextWarningKind
    source_text: str
    """The part of the source that it concerns; empty if the text has something that the source
    lacks."""
    source_begin: int
    source_end: int
    target_text: str
    """The part of the text that it concerns; empty if the text lacks something."""
    target_begin: int
    target_end: int

    def __str__(self) -> str:
        """Shows it in words."""
        reason = self.kind.value.replace("_", " ")
        return f"{reason}: {self.source_text or 'nothing'} -> {self.target_text or 'nothing'}"
