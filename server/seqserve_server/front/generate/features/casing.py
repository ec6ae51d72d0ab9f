"""Casing: a text in capitals, or a heading in Title Case, is read in the letters that its words
usually have, which models learnt; an answer to capitals is written in capitals."""

from itertools import chain, pairwise

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Hypothesis
from seqserve_server.front.generate.records import Asked, Feature, Part, has_prefix
from seqserve_server.text.letter_case import is_all_caps, is_title_case, usual_letters
from seqserve_server.text.tokenizer import Tokenizer

_CAPITAL_COST = 1.25
"""How much more common the form with a capital must be: it also begins many sentences."""


def casing(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it; its affixes are given in their final case."""
    options = asked.options
    is_fixed = has_prefix(options) or options.stop_sequences
    return _Casing(asked.model.tokenizer) if options.lower_capitals and not is_fixed else None


class _Casing(Feature):
    shapes_text = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def read(self, part: Part) -> Part:
        text, protected = part.original, part.protected
        if not (is_all_caps(text, protected) or is_title_case(text, protected)):
            return part
        return part._replace(text=usual_letters(text, protected, self._cost))

    def _cost(self, word: str) -> tuple[int, float]:
        ids = self._tokenizer.pieces(word).ids
        rank = ids[0] if len(ids) == 1 else 0
        return len(ids), rank * (_CAPITAL_COST if word.istitle() and len(word) > 1 else 1)

    def rewrites(self, part: Part) -> bool:
        return part.text != part.original and is_all_caps(part.original, part.protected)

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        if self.rewrites(part):
            uppercase(message)


def uppercase(message: generation_pb2.Hypothesis) -> None:
    """Writes the text of a hypothesis in capitals, ß with two, and moves the places in it."""
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
