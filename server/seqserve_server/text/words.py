"""The rules by which our own vocabularies divide and join texts, and faster ways to follow them.

They divide a word alike everywhere, because they look at white space first and at nothing
beyond it; and most words of a text have come before: :class:`WordCache`. Tokens that are not bytes
join to a text as they are spelled: :class:`Joiner`. The library takes many times as long for both.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import tokenizers
from tokenizers import Regex, decoders, normalizers, pre_tokenizers

START = "▁"
"""Marks the first token of each word."""
NORMALIZER = normalizers.Sequence(
    [normalizers.NFC(), normalizers.Replace(Regex(rf"[\s{START}]+"), " "), normalizers.Strip()]
)
"""Leaves one space between words, and none around them."""
PRE_TOKENIZER = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Metaspace(START, "always"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("isolated"),
    ]
)
"""Divides a text into words, and these at digits and punctuation."""
DECODER = decoders.Sequence(
    [
        decoders.Replace(START, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
)
"""Joins tokens, without the space before the first word."""

_MAX_WORDS, _MAX_CHARACTERS = 16_384, 32


def has_rules(tokenizer: tokenizers.Tokenizer) -> bool:
    """Returns whether a tokenizer has all of these rules, and searches texts for no tokens."""
    rules = (
        (tokenizer.normalizer, NORMALIZER),
        (tokenizer.pre_tokenizer, PRE_TOKENIZER),
        (tokenizer.decoder, DECODER),
    )
    added = tokenizer.get_added_tokens_decoder().values()
    return all(token.special for token in added) and all(
        own and own.__getstate__() == ours.__getstate__() for own, ours in rules
    )


class WordCache:
    """The token ids of words that came before."""

    def __init__(self, divide: Callable[[str], list[int]], starts: frozenset[int]) -> None:
        self._divide, self._starts = divide, starts
        self._known: dict[str, list[int]] = {"": []}

    def divide(self, text: str) -> list[int]:
        """Divides a text; the tokenizer gets only its new words."""
        known = self._known
        if len(known) > _MAX_WORDS:
            # Another one: a thread that reads a text still needs its words.
            known = self._known = {"": []}
        words = text.split(" ")
        if new := [word for word in words if word not in known]:
            learnt = self._by_word(new)
            if not learnt:
                return self._divide(text)
            known.update(learnt)
        return [id_ for word in words for id_ in known[word]]

    def _by_word(self, words: list[str]) -> dict[str, list[int]]:
        """Divides words; returns nothing if one is long or has white space of another kind."""
        text = " ".join(words)
        if max(map(len, words)) > _MAX_CHARACTERS or START in text or text.split() != words:
            return {}
        ids = self._divide(text)
        begins = [index for index, id_ in enumerate(ids) if id_ in self._starts]
        if len(begins) != len(words):
            return {}
        ends = [*begins[1:], len(ids)]
        return {word: ids[begin:end] for word, begin, end in zip(words, begins, ends, strict=True)}


class Joiner:
    """The texts of tokens."""

    def __init__(
        self,
        join: Callable[[Sequence[int]], str],
        spelled: Mapping[int, str],
        byte_ids: Collection[int],
    ) -> None:
        self._join = join
        self._written = Spellings(
            {id_: token.replace(START, " ") for id_, token in spelled.items()}
        )
        self._byte_ids = frozenset(byte_ids)

    def join(self, ids: Sequence[int]) -> str:
        """Joins tokens to a text, without those that are not written."""
        if not self._byte_ids.isdisjoint(ids):
            return self._join(ids)
        return "".join(map(self._written.__getitem__, ids)).removeprefix(" ")


class Spellings(dict[int, str]):
    """Tokens in the order of their ids, with another text for every id that has none."""

    def __init__(self, spelled: Mapping[int, str], other: str = "") -> None:
        super().__init__(sorted(spelled.items()))
        self._other = other

    def __missing__(self, id_: int) -> str:
        return self._other
