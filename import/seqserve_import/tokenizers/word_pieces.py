"""``vocab.txt``: words and their pieces as BERT divides them, which Chinese BART took over."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from seqserve_import.files import AGAIN, CheckpointError, read_bytes
from seqserve_import.tokenizers.added import read_settings, with_added
from seqserve_import.tokenizers.control_tokens import add_tokens, around, respelled
from seqserve_server.text.vocabulary import UNK

FILE = "vocab.txt"


def convert(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a checkpoint with the file."""
    path, settings = folder / FILE, read_settings(folder)
    try:
        lines = read_bytes(path).decode().split("\n")
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: is not UTF-8; {AGAIN}") from None
    tokens = [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
    if len({*tokens}) < len(tokens):
        raise CheckpointError(f"{path}: has the same token twice; {AGAIN}")
    added = with_added(folder, tokens, rows)
    spelled = respelled(folder, added.tokens)
    ids = {spelled.get(token, token): id_ for id_, token in enumerate(added.tokens)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=UNK))
    add_tokens(tokenizer, path, added, special=["[MASK]"])
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case") is not False,
        handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
        strip_accents=settings.get("strip_accents"),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = around(tokenizer, has_front=True)
    return tokenizer
