"""Casing: a text that is typed in capitals is read in small letters, which models learnt, and its
answer is written in capitals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, pairwise

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Hypothesis
from seqserve_server.front.generate.feature import Asked, Feature, Part, without
from seqserve_server.front.generate.splitting import Span, has_prefix

_WORD = re.compile(r"[^\W\d_]{2,}")
_MIN_WORDS = 2


def casing(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it.

    What a target begins or ends with is given in the letters that it is to have.
    """
    options = asked.options
    is_fixed = has_prefix(options) or options.stop_sequences
    return _Casing() if options.lower_capitals and not is_fixed else None


class _Casing(Feature):
    shapes_text = True

    def read(self, part: Part) -> Part:
        if not is_all_caps(part.original, part.protected):
            return part
        return part._replace(text=lowercased(part.original, part.protected))

    def rewrites(self, part: Part) -> bool:
        return part.text != part.original

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        if self.rewrites(part):
            uppercase(message)


def is_all_caps(text: str, protected: Sequence[Span]) -> bool:
    """Tells whether a text is in capitals; a word alone may be a name."""
    rest = without(text, protected)
    return rest.isupper() and len(_WORD.findall(rest)) >= _MIN_WORDS


def lowercased(text: str, protected: Sequence[Span]) -> str:
    """Writes a text in small letters; each character keeps its place."""
    characters = [small if len(small := each.lower()) == 1 else each for each in text]
    for begin, end in protected:
        characters[begin:end] = text[begin:end]
    return "".join(characters)


def uppercase(message: generation_pb2.Hypothesis) -> None:
    """Writes the text of a hypothesis in capitals, and moves the places in it.

    A letter may have two capitals, as ß has. The tokens do not change.
    """
    text, alignment = message.text, message.alignment
    kept = sorted((each.target_begin, each.target_end) for each in message.kept)
    borders = [0, *chain.from_iterable(kept), len(text)]
    characters = list(text)
    for begin, end in list(pairwise(borders))[::2]:
        characters[begin:end] = [each.upper() for each in text[begin:end]]
    places = [0]
    for each in characters:
        places.append(places[-1] + len(each))
    message.text = "".join(characters)
    for own in message.kept:
        own.target_begin, own.target_end = places[own.target_begin], places[own.target_end]
    alignment.target_begins[:] = [places[place] for place in alignment.target_begins]
    alignment.target_ends[:] = [places[place] for place in alignment.target_ends]
