"""What a model answers that writes each passage in capitals."""

import re
from itertools import pairwise

from seqserve.documents.passage import Link, Passage, Translation


def capitals(passage: Passage) -> Translation:
    """A passage in capitals, aligned word by word; what the server keeps stays."""
    text, kept = passage.text, passage.kept
    # As the server has it: by itself where it begins or ends with a letter.
    stays = [
        rf"(?<!\w(?=\w)){re.escape(each)}(?!(?<=\w)\w)"
        for each in sorted(kept, key=len, reverse=True)
    ]
    parts, links, length = [], [], 0
    places = [0]
    for unit in re.finditer("|".join([*stays, r"\w+", r"[^\w\s]"]), text):
        places += unit.span()
    for number, (begin, end) in enumerate(pairwise([*places, len(text)])):
        part = text[begin:end]
        new = part if part in kept else part.upper()
        if number % 2:
            links.append(Link(begin, end, length, length + len(new)))
        parts.append(new)
        length += len(new)
    return Translation("".join(parts), tuple(links))
