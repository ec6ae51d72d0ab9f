"""Casing: a text in capitals, or a heading in Title Case, is read in the letters that its words
usually have, which models learnt; an answer to capitals is written in capitals. For vocabularies
like ours, a word after a bracket and guillemets are read in their usual form too."""

import re
from collections.abc import Callable, Sequence

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Hypothesis
from seqserve_server.front.generate.records import Asked, Feature, Part, has_prefix
from seqserve_server.text.protected import UNREAD, without
from seqserve_server.text.splitting import Span
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
        if is_all_caps(text, protected) or is_title_case(text, protected):
            part = part._replace(text=usual_letters(part.text, protected, self._cost))
        has_brackets = " (" in text and not _JOINED.search(text)
        has_quotes = "»" in text and "«" in text
        # Where a bracket and the space before it are tokens, words after it lack theirs.
        if (has_brackets or has_quotes) and len(self._tokenizer.pieces("(").ids) > 1:
            read = part.text.translate(_QUOTES) if has_quotes else part.text
            if has_brackets:
                read = _with_spaces_after_brackets(read, protected)
            part = part._replace(text=read)
        return part

    def _cost(self, word: str) -> tuple[int, float]:
        ids = self._tokenizer.pieces(word).ids
        rank = ids[0] if len(ids) == 1 else 0
        return len(ids), rank * (_CAPITAL_COST if word.istitle() and len(word) > 1 else 1)

    def rewrites(self, part: Part) -> bool:
        return part.text != part.original and (
            _has_moved(part) or is_all_caps(part.original, part.protected)
        )

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        if part.text == part.original:
            return
        if is_all_caps(part.original, part.protected):
            uppercase(message)
        if _has_moved(part):
            _rewrite(message, _with_spaces_before_brackets(message.text))


# Few translations have others.
_QUOTES = str.maketrans("«»", '""')
# Brackets that are not after a space alone.
_JOINED = re.compile(r"\S\(|\( ")
_BRACKET = re.compile(rf"(?<=\S) \((?={UNREAD}*[^\W\d_])")
_MOVED = re.compile(r"\( ?")


def _with_spaces_after_brackets(text: str, protected: Sequence[Span]) -> str:
    """Moves the space before a bracket behind it; other characters keep their places."""
    begins = {span.begin for span in protected if text[span.begin] != UNREAD}
    return _BRACKET.sub(lambda each: each[0] if each.end() in begins else "( ", text)


def _has_moved(part: Part) -> bool:
    places = (match.start() for match in re.finditer(r"\( ", part.text))
    return any(part.original.startswith(" (", place) for place in places)


def _with_spaces_before_brackets(text: str) -> list[str]:
    characters = list(text)
    for begin, end in (match.span() for match in _MOVED.finditer(text)):
        is_joined = begin and not text[begin - 1].isspace()
        characters[begin:end] = [" (" if is_joined else "(", ""][: end - begin]
    return characters


def uppercase(message: generation_pb2.Hypothesis) -> None:
    """Writes the text of a hypothesis in capitals, ß with two, and moves the places in it."""
    _rewrite(message, [each.upper() for each in message.text])


def _rewrite(message: generation_pb2.Hypothesis, characters: list[str]) -> None:
    """Writes texts for the characters of a hypothesis that are not kept, and moves its places."""
    text, alignment = message.text, message.alignment
    for own in message.kept:
        place = slice(own.target_begin, own.target_end)
        characters[place] = text[place]
    places = [0]
    for each in characters:
        places.append(places[-1] + len(each))
    message.text = "".join(characters)
    for own in message.kept:
        own.target_begin, own.target_end = places[own.target_begin], places[own.target_end]
    alignment.target_begins[:] = [places[place] for place in alignment.target_begins]
    alignment.target_ends[:] = [places[place] for place in alignment.target_ends]


_APOSTROPHES = ("'", "’")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LETTERS = re.compile(r"[^\W\d_]++")
_BEGINNING = re.compile(r"(?<![\w'’])[^\W\d_]++")
_MIN_WORDS, _MIN_TITLE_WORDS = 2, 3
_LONG_CHARACTERS = 4
"""Of a word that Title Case begins with a capital, as it does not "of" and "the"."""
_SMALL_WORDS = re.compile(
    "an?|and|as|at|but|by|for|from|in|into|of|off|on|or|out|over|the|to|up|with"
)
_ENDING_CHARACTERS = 2
"""Of what follows an apostrophe and is no word, as in "don't"."""
_MAX_WORD_CHARACTERS = 40


def is_all_caps(text: str, protected: Sequence[Span]) -> bool:
    """Tells whether a text is in capitals; a word alone may be a name, and 9 AM – 5 PM is not."""
    rest = without(text, protected)
    words = _WORD.findall(rest) if rest.isupper() else []
    return len(words) >= _MIN_WORDS and max(map(len, words)) > _ENDING_CHARACTERS


def is_title_case(text: str, protected: Sequence[Span]) -> bool:
    """Tells whether a text is a heading whose longer words begin with capitals.

    One of two words is rather a name, one with a period rather a sentence.
    """
    rest = without(text, protected).rstrip()
    if ". " in rest:
        return False
    words = _BEGINNING.findall(rest)
    small = [word for word in words if not word[0].isupper()]
    is_sentence = rest.endswith(".")
    may_be = not is_sentence and all(len(word) < _LONG_CHARACTERS for word in small)
    return (
        len(words) >= _MIN_TITLE_WORDS
        and len(words) - len(small) >= _MIN_WORDS + is_sentence
        and any(len(word) >= _LONG_CHARACTERS for word in words)
        and (may_be or all(map(_SMALL_WORDS.fullmatch, small)))
    )


def usual_letters(
    text: str, protected: Sequence[Span], cost: Callable[[str], tuple[int, float]]
) -> str:
    """Writes each word of a text in its usual letters; each character keeps its place.

    A form of a word costs the tokens in which it is read, then their rank in the vocabulary, which
    begins with frequent ones. With capitals amid small letters a word stays: McDonald.
    """
    characters = list(text)
    is_upper, has_begun = without(text, protected).isupper(), False
    for match in _LETTERS.finditer(text):
        word, begin = match[0], match.start()
        capital = word[0] + "".join(map(_small, word[1:]))
        forms = [_small(word[0]) + capital[1:]] * has_begun + [capital]
        if is_upper:
            forms.append(word)
        elif word != capital:
            forms = [word]
        is_ending = text[begin - 1 : begin] in _APOSTROPHES and len(word) <= _ENDING_CHARACTERS
        is_known = not is_ending and len(word) <= _MAX_WORD_CHARACTERS
        best = min(forms, key=cost) if is_known else forms[0]
        characters[begin : match.end()] = best
        has_begun = True
    for begin, end in protected:
        characters[begin:end] = text[begin:end]
    return "".join(characters)


def _small(letter: str) -> str:
    return small if len(small := letter.lower()) == 1 else letter
