"""Writes an answer in capitals, as its source was typed."""

from __future__ import annotations

from itertools import chain, pairwise

from seqserve.v1 import generation_pb2

Hypothesis = generation_pb2.Hypothesis


def write_in_capitals(message: Hypothesis) -> None:
    """Writes the text in capitals, apart from what it keeps, and moves the places in it.

    A letter may have two capitals, as ß has. Tokens stay those of the model.
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
