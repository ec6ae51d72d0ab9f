"""A vocabulary of one side, sources or targets: its tokens, the rule that divides texts, and what
it can spell: characters, scripts, and the tokens that stand for what it lacks.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import tokenizers
from tokenizers import decoders

from seqserve.errors import OptionError
from seqserve_server.text.library import fault_of
from seqserve_server.text.words import START, Joiner, Spellings, WordCache, has_rules

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
# Ends the tokens that text of this side cannot become: no divided text contains a space.
_OTHER_SIDE = " "
# The library keeps the interpreter lock while it encodes a text, but not while it encodes a batch.
_SHORT_CHARACTERS = 1024


class Pieces(NamedTuple):
    """The tokens of a text."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    """Where each begins and ends in the text as it was given, in Unicode code points."""


class Vocabulary:
    """The vocabulary of sources, or of targets, and the rule that divides them."""

    def __init__(self, library: tokenizers.Tokenizer, size: int | None) -> None:
        """Checks that the tokens beyond ``size`` are special, and that there are control tokens."""
        # No text becomes a special token, and none is padded or cut.
        library.encode_special_tokens = True
        library.no_padding()
        library.no_truncation()
        self.library = library
        self.vocabulary_size: int = library.get_vocab_size()
        self._size = self.vocabulary_size if size is None else size
        self.pad_id, self.eos_id, self.unk_id = map(self._known_id_of, (PAD, EOS, UNK))
        byte_ids = map(library.token_to_id, BYTE_TOKENS)
        self.byte_ids = frozenset(id_ for id_ in byte_ids if id_ is not None)
        added = library.get_added_tokens_decoder()
        self.hidden_ids = frozenset(id_ for id_, token in added.items() if token.special)
        self._unwritten_ids = self.hidden_ids | {self.pad_id, self.eos_id, self.id_of(BOS)}
        if not self.hidden_ids.issuperset(range(self._size, self.vocabulary_size)):
            raise OptionError(f"tokenizer: has more tokens than the model, which has {size}")

    @cached_property
    def spelled(self) -> Spellings:
        """Each token as it is spelled, by its id."""
        vocabulary = self.library.get_vocab()
        spelled = {id_: token.removesuffix(_OTHER_SIDE) for token, id_ in vocabulary.items()}
        return Spellings(spelled, UNK)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Spells tokens."""
        return [*map(self.spelled.__getitem__, ids)]

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token; None if the model has none."""
        ids = map(self.library.token_to_id, (token, f"{token}{_OTHER_SIDE}"))
        id_: int | None = next((each for each in ids if each is not None), None)
        return id_ if id_ is not None and id_ < self._size else None

    def normalized(self, text: str) -> str:
        """Changes a text as the rule does before it divides it."""
        normalizer = self.library.normalizer
        try:
            changed: str = normalizer.normalize_str(text) if normalizer else text
        except BaseException as error:
            raise fault_of(error) from None
        return changed

    def divide(self, text: str) -> list[int]:
        """Divides a text; the last id is the end token."""
        if len(text) <= _SHORT_CHARACTERS:
            return [*self._divide_short(text), self.eos_id]
        return self.divide_all([text])[0]

    @cached_property
    def _divide_short(self) -> Callable[[str], list[int]]:
        if not has_rules(self.library):
            return self._ids
        starts = (id_ for id_, token in self.spelled.items() if token.startswith(START))
        return WordCache(self._ids, frozenset(starts)).divide

    def _ids(self, text: str) -> list[int]:
        try:
            ids = self.library.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            raise fault_of(error) from None
        return self._without_controls(ids)

    @cached_property
    def join(self) -> Callable[[Sequence[int]], str]:
        """Joins tokens to a text, without special ones."""
        if not has_rules(self.library):
            return self._text
        vocabulary = self.library.get_vocab()
        written = {id_: token for token, id_ in vocabulary.items() if id_ not in self.hidden_ids}
        return Joiner(self._text, written, self.byte_ids).join

    def _text(self, ids: Sequence[int]) -> str:
        try:
            text: str = self.library.decode(list(ids), skip_special_tokens=True)
        except BaseException as error:
            raise fault_of(error) from None
        return text

    def pieces(self, text: str) -> Pieces:
        """Divides a text into tokens and their places."""
        try:
            if len(text) <= _SHORT_CHARACTERS:
                encoding = self.library.encode(text, add_special_tokens=False)
            else:
                [encoding] = self.library.encode_batch([text], add_special_tokens=False)
        except BaseException as error:
            raise fault_of(error) from None
        return Pieces(self._without_controls(encoding.ids), encoding.offsets)

    def divide_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Divides many texts, on all cores."""
        try:
            encodings = self.library.encode_batch_fast(list(texts), add_special_tokens=False)
        except BaseException as error:
            raise fault_of(error) from None
        return [[*self._without_controls(encoding.ids), self.eos_id] for encoding in encodings]

    def _without_controls(self, ids: list[int]) -> list[int]:
        # A unigram vocabulary lists special tokens among its pieces, so text can match them.
        unwritten, unk = self._unwritten_ids, self.unk_id
        return [unk if id_ in unwritten else id_ for id_ in ids]

    def _known_id_of(self, token: str) -> int:
        id_ = self.id_of(token)
        if id_ is None:
            raise OptionError(f"tokenizer: {token!r} is not in the vocabulary")
        return id_


# A vocabulary learnt from the Web has a few tokens of many scripts that its model cannot read.
_KNOWN_SHARE = 0.002
# Tokens of byte-level vocabularies are spelled with a character for each byte.
_BYTE_LEVEL_SPACE = "\u0120"
# Characters whose script is remembered; callers choose which ones they send.
_MAX_CACHED = 10_000


class Alphabet(NamedTuple):
    """The characters and scripts of a vocabulary, and its tokens for characters that it lacks."""

    characters: frozenset[str]
    """Characters that a token has, not only bytes of them; all characters if it is empty."""
    scripts: frozenset[str]
    """Scripts that at least two in a thousand tokens have a letter of, by :func:`script_of`."""
    unknown_ids: frozenset[int]
    """The unknown token, and those of single bytes."""

    @classmethod
    def of(cls, vocabulary: Mapping[int, str], unknown_ids: frozenset[int]) -> Alphabet:
        """Counts the scripts of the tokens of a vocabulary."""
        words = [token for id_, token in vocabulary.items() if id_ not in unknown_ids]
        is_byte_level = any(word.startswith(_BYTE_LEVEL_SPACE) for word in words)
        if is_byte_level:
            decoder = decoders.ByteLevel()
            words = [decoder.decode([word]) for word in words]
        characters = frozenset(" ").union(*words) - {"\N{REPLACEMENT CHARACTER}"}
        if is_byte_level and all(map(str.isascii, characters)):
            # Other characters are bytes to such a model, as to ByT5.
            characters = frozenset()
        counts = Counter(script for word in words for script in set(map(script_of, word)))
        scripts = {script for script, count in counts.items() if count >= _KNOWN_SHARE * len(words)}
        return cls(characters, frozenset(scripts) - {""}, unknown_ids)

    def spells(self, text: str) -> bool:
        """Returns whether the vocabulary has all characters of a text."""
        return not self.characters or self.characters.issuperset(text)


@lru_cache(_MAX_CACHED)
def script_of(character: str) -> str:
    """Returns the script of a letter, such as ``LATIN``, or nothing for what is not a letter.

    Python has no property of scripts, so it is the first word of the letter's Unicode name.
    """
    return unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
