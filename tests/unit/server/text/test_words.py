from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from seqserve_model.vocabulary import learn_vocabulary
from seqserve_server.text import words
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.words import WordCache, has_rules

TEXTS = ["The coffee tastes good.", "Der Kaffee schmeckt gut.", "Grüße aus Köln 🙂"] * 5
TOKENIZER = learn_vocabulary(TEXTS, size=330, characters=40)
# White space of all kinds, marks on nothing, control tokens, and words in parts and as a whole.
PARTS = [*"abé ▁\t\n\x1c\xa0\u3000\u0301\u00ad.,1🙂", "coffee", "</s>", " ", " ", "Kaffee" * 6]
texts = st.lists(st.sampled_from(PARTS) | st.characters(codec="utf-8"), max_size=12).map("".join)


def library_of(tokenizer: Tokenizer) -> Any:
    return tokenizer.source.library


def ids_of(text: str) -> list[int]:
    """The tokens that the library divides a text into."""
    ids: list[int] = library_of(TOKENIZER).encode(text, add_special_tokens=False).ids
    return ids


@given(st.lists(texts, max_size=4))
def test_words_that_came_before_change_no_token(sources: list[str]) -> None:
    for text in [*sources, *sources]:
        assert TOKENIZER.encode_target(text) == [*ids_of(text), TOKENIZER.eos_id]


@given(st.lists(st.integers(0, TOKENIZER.vocabulary_size + 3), max_size=9))
def test_tokens_are_joined_as_the_library_joins_them(ids: list[int]) -> None:
    assert TOKENIZER.decode(ids) == library_of(TOKENIZER).decode(ids, skip_special_tokens=True)


class Divider:
    """Divides by the library, and notes what."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.texts.append(text)
        return ids_of(text)


def words_of(divide: Callable[[str], list[int]]) -> WordCache:
    spelled = TOKENIZER.target.spelled.items()
    return WordCache(divide, frozenset(id_ for id_, token in spelled if token.startswith("▁")))


def test_only_new_words_are_divided() -> None:
    divide = Divider()
    known = words_of(divide)
    known.divide("The coffee tastes good.")
    known.divide("Der coffee tastes gut.")
    known.divide("gut. coffee")
    assert divide.texts == ["The coffee tastes good.", "Der gut."]


def test_few_words_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "_MAX_WORDS", 3)
    divide = Divider()
    known = words_of(divide)
    for text in ("a b", "c d", "a b"):
        assert known.divide(text) == ids_of(text)
    assert divide.texts == ["a b", "c d", "a b"]


def test_other_rules_are_left_to_the_library() -> None:
    library = library_of(learn_vocabulary(TEXTS, size=330, characters=40))
    assert has_rules(library)
    library.normalizer = normalizers.NFC()
    assert not has_rules(library)
    library.normalizer, library.pre_tokenizer = words.NORMALIZER, pre_tokenizers.Metaspace()
    assert not has_rules(library)
    library.pre_tokenizer = words.PRE_TOKENIZER
    library.add_tokens(["coffee tastes"])
    assert not has_rules(library)
