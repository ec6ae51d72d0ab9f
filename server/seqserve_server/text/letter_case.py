"""The case of letters: capitals, headings in Title Case, and the letters that words mostly have."""

import re
from collections.abc import Callable, Sequence

from seqserve_server.text.protected import without
from seqserve_server.text.splitting import Span

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
