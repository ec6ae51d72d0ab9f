"""Learns the joint vocabulary of source and target: byte-pair encoding with byte fallback.

Words are marked by ``▁`` at their start; digits and marks of punctuation are single tokens. A
character that the vocabulary does not hold is written as its UTF-8 bytes, so no text is ever
unknown.

Sources: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units";
Kudo and Richardson 2018, "SentencePiece" (``▁`` and byte fallback).
"""

import json
from collections.abc import Iterable
from pathlib import Path

import tokenizers
from tokenizers import models, trainers

from seqserve.errors import OptionError
from seqserve.files import written_whole
from seqserve_server.text.tokenizer import TARGET_FILE, Tokenizer
from seqserve_server.text.vocabulary import BOS, BYTE_TOKENS, EOS, PAD, UNK
from seqserve_server.text.words import DECODER, NORMALIZER, PRE_TOKENIZER

CONTROL_TOKENS = [PAD, BOS, EOS, UNK]


def learn_vocabulary(texts: Iterable[str], *, size: int, characters: int) -> Tokenizer:
    """Learns a vocabulary from the texts of both languages.

    Args:
        size: Number of tokens, the 4 control tokens and the 256 bytes counted.
        characters: Limit of characters that are tokens; the most frequent ones are.
    """
    tokenizer = _untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=CONTROL_TOKENS + BYTE_TOKENS,
        limit_alphabet=characters,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    learnt = tokenizer.get_vocab_size()
    if learnt > size:
        raise OptionError(
            f"vocabulary.size is {size}, but characters alone make {learnt} tokens; "
            "raise vocabulary.size or lower vocabulary.characters"
        )
    # A small corpus runs out of words to merge: the rest is reserved and never learnt.
    tokenizer.add_special_tokens([f"<unused{number}>" for number in range(size - learnt)])
    return Tokenizer(_without_added_bytes(tokenizer))


def _untrained() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNK, byte_fallback=True))
    tokenizer.normalizer, tokenizer.pre_tokenizer = NORMALIZER, PRE_TOKENIZER
    tokenizer.decoder = DECODER
    return tokenizer


def _without_added_bytes(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Keeps the byte tokens in the vocabulary only.

    The trainer reserves their ids as control tokens, which would be left out of decoded
    text.
    """
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [
        token for token in content["added_tokens"] if token["content"] not in BYTE_TOKENS
    ]
    return tokenizers.Tokenizer.from_str(json.dumps(content, ensure_ascii=False))


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> list[str]:
    """Writes ``tokenizer.json``, and the tokenizer of targets if any; returns their names."""
    files = {path: tokenizer.source.library}
    if tokenizer.target.library is not tokenizer.source.library:
        files[path.with_name(TARGET_FILE)] = tokenizer.target.library
    for file, library in files.items():
        with written_whole(file, "w", option="") as text:
            print(library.to_str(pretty=True), file=text)
    return [file.name for file in files]
