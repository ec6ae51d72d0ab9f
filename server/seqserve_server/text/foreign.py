"""Foreign words: those of a text that its vocabulary cannot spell, and names to read for them.

A model that gets the bytes of a word of another script, or unknown tokens, writes nonsense, often
for the rest of the sentence too. It copies a common name and writes a fluent sentence around it,
so it reads one in the place of each foreign word.
"""

import unicodedata
from collections.abc import Iterator, Sequence

from seqserve_server.text.splitting import Span
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import script_of

# Many languages write these alike. Characters of a text keep their places, so a name is not longer
# than a word, and spaces make up for the rest.
_NAMES = ("Martin", "Laura", "David", "Lisa", "Emma", "Tom", "Leo", "Eva", "Li", "Bo", "Jo", "X")
_GENITIVES = ("'s", "’s")
_JOINS = frozenset("'’-·・")


def foreign_words(text: str, tokenizer: Tokenizer) -> list[Span]:
    """Finds the foreign words of a text, in order; none if they have half of its letters or more.

    A word is foreign if the vocabulary of sources lacks a letter of it, and it is in a script of
    which the vocabulary has hardly any word, or begins with a capital: 李明, Łódź.
    """
    if text.isascii():
        return []
    unread = {each for each in set(text) if not each.isascii() and _is_unread(each, tokenizer)}
    if not unread:
        return []
    known = tokenizer.alphabet.scripts
    words = []
    for begin, end in _words(text):
        places = [at for at in range(begin, end) if text[at] in unread]
        if places and known.isdisjoint(script_of(text[at]) for at in places):
            # Letters of the model's own scripts around it may be a particle, as in 李明은.
            first, last = places[0], places[-1] + 1
            while last < end and not text[last].isalpha():
                last += 1
            words.append(Span(first, last))
        elif places and text[begin].isupper():
            words.append(Span(begin, end - 2 * text[begin:end].endswith(_GENITIVES)))
    letters = [sum(map(str.isalpha, text[slice(*word)])) for word in words]
    return _joined(text, words) if 2 * sum(letters) < sum(map(str.isalpha, text)) else []


def with_names(text: str, words: Sequence[Span], tokenizer: Tokenizer) -> str:
    """Writes a name for each of some words of a text, whose other characters keep their places.

    A word stays if each name that is not too long is in the text already.
    """
    names = [each for each in _NAMES if each not in text and tokenizer.alphabet.spells(each)]
    # A name of one token is a frequent one.
    names.sort(key=lambda name: len(tokenizer.pieces(name).ids))
    reads_spaces = tokenizer.encode("  a  a") != tokenizer.encode("a a")
    characters = list(text)
    for begin, end in words:
        lengths = {end - begin} if reads_spaces else range(end - begin + 1)
        if name := next((each for each in names if len(each) in lengths), ""):
            names.remove(name)
            is_after_space = not begin or text[begin - 1].isspace()
            fill = name.rjust if is_after_space else name.ljust
            characters[begin:end] = fill(end - begin)
    return "".join(characters)


def _is_unread(letter: str, tokenizer: Tokenizer) -> bool:
    if tokenizer.reads(letter) or not letter.isalpha():
        return False
    return not all(map(tokenizer.reads, tokenizer.spelled(letter).text))


def _words(text: str) -> Iterator[Span]:
    begin = end = 0
    for end, character in enumerate(f"{text} "):
        is_within = character.isalnum() or unicodedata.category(character)[0] == "M"
        if is_within or (begin < end and character in _JOINS and text[end + 1 : end + 2].isalnum()):
            continue
        if begin < end:
            yield Span(begin, end)
        begin = end + 1


def _joined(text: str, words: Sequence[Span]) -> list[Span]:
    """Joins words with a space alone between them, such as a name and a surname."""
    joined: list[Span] = []
    for word in words:
        if joined and text[joined[-1].end : word.begin].isspace():
            word = Span(joined.pop().begin, word.end)
        joined.append(word)
    return joined
