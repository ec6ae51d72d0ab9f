"""Tells that a source is probably not what its model reads: its script, symbols, markup.

No language is identified: a French sentence for an English model has the same letters. Its answer
has a low confidence instead.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from seqserve.v1 import generation_pb2
from seqserve_server.contract.alphabet import script_of
from seqserve_server.contract.tokenizer import Tokenizer

_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|<!--")
# Names and quotations may be in another script than the text around them.
_OTHER_SHARE = 0.3


def source_warnings(
    text: str, ids: Sequence[int], tokenizer: Tokenizer
) -> list[generation_pb2.SourceWarning]:
    """Looks for what the model cannot read.

    Args:
        text: The source.
        ids: Its tokens.
        tokenizer: That of the model.
    """
    alphabet = tokenizer.alphabet
    found = []
    if not alphabet.unknown_ids.isdisjoint(ids) and _lacks_letter(text, tokenizer):
        found.append(generation_pb2.SOURCE_WARNING_UNKNOWN_CHARACTERS)
    if not text.isascii() or "LATIN" not in alphabet.scripts:
        scripts = [script for script in map(script_of, text) if script]
        others = sum(script not in alphabet.scripts for script in scripts)
        if others and others >= _OTHER_SHARE * len(scripts):
            found.append(generation_pb2.SOURCE_WARNING_OTHER_SCRIPT)
    if "<" in text and _MARKUP.search(text):
        found.append(generation_pb2.SOURCE_WARNING_MARKUP)
    return found


def _lacks_letter(text: str, tokenizer: Tokenizer) -> bool:
    """Tells whether a character that the vocabulary lacks has a meaning of its own.

    Letters and symbols have; unusual marks of punctuation and spaces are rarely missed.
    """
    found = tokenizer.pieces(text)
    unknown = (
        text[slice(*place)]
        for id_, place in zip(found.ids, found.offsets, strict=True)
        if id_ in tokenizer.alphabet.unknown_ids
    )
    return any(unicodedata.category(each)[0] in "LS" for part in unknown for each in part)
