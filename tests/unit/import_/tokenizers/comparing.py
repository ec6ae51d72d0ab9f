"""Compares a converted tokenizer with the one that it stands for."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sentencepiece
import tokenizers

Encode = Callable[[str], list[int]]
Decode = Callable[[list[int]], str]


def served(tokenizer: tokenizers.Tokenizer) -> Encode:
    """Returns what encodes as the server does: no special token comes from text."""
    tokenizer.encode_special_tokens = True
    added: dict[int, Any] = tokenizer.get_added_tokens_decoder()
    special = {id_ for id_, token in added.items() if token.special}
    unk = tokenizer.token_to_id("<unk>")

    def encode(text: str) -> list[int]:
        ids = tokenizer.encode(text).ids
        first = tokenizer.encode("").ids[:-1]  # <s>, where there is one
        body = ids[len(first) : -1]
        return [*first, *(unk if id_ in special else id_ for id_ in body), ids[-1]]

    return encode


def differences(texts: Sequence[str], one: Encode, other: Encode) -> list[str]:
    """Returns the texts whose ids are not the same."""
    return [text for text in texts if one(text) != other(text)]


def tied(text: str, file: bytes, tokenizer: tokenizers.Tokenizer) -> bool:
    """Returns whether two divisions of a text have the same score.

    SentencePiece adds scores as 32-bit numbers, so that rounding decides between equal ones.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=file)

    def known(tokens: Sequence[str]) -> list[str]:
        return [token for token in tokens if not processor.is_unknown(processor[token])]

    def score(tokens: Sequence[str]) -> float:
        return sum(processor.get_score(processor[token]) for token in tokens)

    there = known(processor.encode(text, out_type=str))
    here = known(tokenizer.encode(text).tokens[:-1])
    return "".join(there) == "".join(here) and score(there) == pytest.approx(score(here))


def decoded_alike(ids: Sequence[int], count: int, one: Decode, other: Decode) -> None:
    """Asserts that sequences of any of the ids have the same text."""
    source = random.Random(0)
    for _ in range(count):
        sequence = source.choices(ids, k=source.randint(0, 12))
        assert one(sequence) == other(sequence)
