"""Turns a text that is typed in capitals into small letters, which models learnt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from seqserve.v1 import generation_pb2
from seqserve_server.front.request.kept_spans import without
from seqserve_server.front.request.splitting import Span, has_prefix

_WORD = re.compile(r"[^\W\d_]{2,}")
_MIN_WORDS = 2


def lowers_capitals(options: generation_pb2.GenerationOptions) -> bool:
    """Tells whether texts in capitals are read in small letters.

    What a target begins or ends with is given in the letters that it is to have.
    """
    return options.lower_capitals and not (has_prefix(options) or options.stop_sequences)


def in_capitals(text: str, kept: Sequence[Span]) -> bool:
    """Tells whether a text is in capitals, apart from what is kept; a word alone may be a name."""
    rest = without(text, kept)
    return rest.isupper() and len(_WORD.findall(rest)) >= _MIN_WORDS


def lowered(text: str, kept: Sequence[Span]) -> str:
    """Writes a text in small letters, apart from what is kept; each character keeps its place."""
    characters = [small if len(small := each.lower()) == 1 else each for each in text]
    for begin, end in kept:
        characters[begin:end] = text[begin:end]
    return "".join(characters)
