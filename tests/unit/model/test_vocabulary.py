import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqserve.errors import OptionError
from seqserve_model.vocabulary import learn_vocabulary
from seqserve_server.text.tokenizer import Tokenizer

TEXTS = ["The coffee tastes good.", "Der Kaffee schmeckt gut.", "We watched a film, didn't we?"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn_vocabulary(TEXTS * 5, size=320, characters=30)


def test_control_tokens_come_first(tokenizer: Tokenizer) -> None:
    ids = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)
    assert ids == (0, 1, 2, 3)


def test_the_size_is_the_one_asked_for(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary_size == 320
    assert learn_vocabulary(TEXTS, size=1024, characters=30).vocabulary_size == 1024


def test_reserved_tokens_cannot_be_typed_and_are_not_shown() -> None:
    tokenizer = learn_vocabulary(TEXTS, size=1024, characters=30)
    assert 1023 not in tokenizer.encode(tokenizer.target.tokens([1023])[0])
    assert tokenizer.decode([1023]) == ""


def test_more_characters_than_tokens_are_refused() -> None:
    with pytest.raises(OptionError, match=r"raise vocabulary\.size"):
        learn_vocabulary(["abcdefghijklmnopqrstuvwxyz"], size=270, characters=26)


def test_digits_and_punctuation_stand_alone(tokenizer: Tokenizer) -> None:
    tokens = learn_vocabulary(["12:30 12:30 12:30."] * 9, size=300, characters=30)
    assert tokens.target.tokens(tokens.encode("12:30.")) == [*"▁12:30.", "</s>"]


@pytest.mark.parametrize("typed", ["</s>", "<s>", "<pad>", "<unk>", "a</s>b", "<0x41>", "</s> x"])
def test_control_tokens_typed_by_a_user_are_text(tokenizer: Tokenizer, typed: str) -> None:
    ids = tokenizer.encode(typed)
    assert not {0, 1, 2, 3} & set(ids[:-1])
    assert tokenizer.decode(ids) == typed


assigned = st.text(st.characters(exclude_categories=["Cs", "Cn"]))


@given(assigned)
@example("</s>")
@example("日本 🙂 é e\u0301 ▁ \u00a0 x\ty\n")
@example("� � <0xE2>")
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    composed = unicodedata.normalize("NFC", tokenizer.spelled(text).text)
    # White space as Unicode has it; Python counts four separators (U+001C to U+001F) more.
    collapsed = re.sub("(?:(?![\x1c-\x1f])[\\s▁])+", " ", composed)
    assert tokenizer.decode(ids) == collapsed.strip(" ")
    assert tokenizer.unk_id not in ids


@given(st.lists(assigned, max_size=4))
def test_many_texts_are_encoded_as_each_alone(tokenizer: Tokenizer, texts: list[str]) -> None:
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


SPANS = ["1.234,56 €", "https://a-b.example/x_y?id=7&n=%20#z", "{{user}} %1$s"]
SPANS += ["v1.2.x-rc3", "Łukasz 🎓"]


@pytest.mark.parametrize("span", SPANS)
def test_spans_that_are_copied_have_offsets_and_stream(tokenizer: Tokenizer, span: str) -> None:
    pieces = tokenizer.pieces(span)
    covered = {place for start, end in pieces.offsets for place in range(start, end)}
    assert covered >= {place for place, character in enumerate(span) if character != " "}
    stream, ids = tokenizer.stream(), tokenizer.encode_target(span)[:-1]
    text = "".join(stream.push([id_]) for id_ in ids)
    assert text + stream.flush(tokenizer.decode(ids)) == span
