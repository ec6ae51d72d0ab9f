"""The sentences on which an import is proved."""

import random
from collections.abc import Collection
from pathlib import Path

from seqserve.errors import OptionError
from seqserve.files import read_text
from seqserve_model.data import Pair
from seqserve_model.decoding import greedy_in_batches
from seqserve_model.transformer import Transformer
from seqserve_server.text.tokenizer import Tokenizer

_SHORTEST, _LONGEST = 2, 24
_MAX_WRITTEN = 64
_BATCH_ROWS = 32


def read_sentences(path: Path, limit: int) -> list[Pair]:
    """Reads sentences, one a line, each with its translation after a TAB if it has one.

    Raises:
        OptionError: The file cannot be read, or is empty.
    """
    lines = read_text(path, "--data").splitlines()
    columns = [line.split("\t") for line in lines if line.strip()][:limit]
    if not columns:
        raise OptionError(f"--data: {path}: holds no sentence")
    return [Pair(cells[0].strip(), "".join(cells[1:2]).strip()) for cells in columns]


def write_sentences(
    model: Transformer, tokenizer: Tokenizer, unusable: Collection[int], limit: int
) -> list[Pair]:
    """Lets a model write sentences: half are drawn words, half its answers to them.

    Such text says nothing of how well it translates, but it brings every part of the network to
    work, which is enough to compare two computations.

    Args:
        unusable: Tokens that are not drawn. limit: Maximum number of sentences; never more than 64.

    Raises:
        OptionError: All that it writes is empty.
    """
    draw, limit = random.Random(1), min(limit, _MAX_WRITTEN)
    tokens = [
        token
        for token in range(tokenizer.vocabulary_size)
        if token not in unusable and not tokenizer.is_hidden(token)
    ]
    longest = min(_LONGEST, model.config.max_source_length - 1)
    texts = [
        tokenizer.decode(draw.choices(tokens, k=draw.randint(_SHORTEST, longest)))
        for _ in range(-(-limit // 2))
    ]
    sources = [
        tokenizer.truncate(ids, model.config.max_source_length)
        for ids in tokenizer.encode_batch(texts)
        if ids  # a model may read no end token
    ]
    written = greedy_in_batches(model, sources, longest, _BATCH_ROWS)
    texts += [tokenizer.decode(ids) for ids in written]
    usable = dict.fromkeys(text for text in map(str.strip, texts) if text)
    if not usable:
        raise OptionError("--data: the model writes no text to prove it with; name a file")
    return [Pair(text, "") for text in usable][:limit]
