"""BART without a ``tokenizer.json``: byte-pair encoding of ``vocab.json`` and ``merges.txt``."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from seqserve.errors import OptionError
from seqserve_import.tokenizers.files import AGAIN, read_bytes, read_vocabulary
from seqserve_import.tokenizers.segmentation import EOS, PAD, UNK

_BOS = "<s>"


def convert(folder: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a BART checkpoint."""
    tokens = read_vocabulary(folder / "vocab.json")
    special = [_BOS, PAD, EOS, UNK, "<mask>"]
    ids = {token: id_ for id_, token in enumerate(tokens)}
    if absent := [token for token in special if token not in ids]:
        raise OptionError(f"{folder / 'vocab.json'}: has no token {absent[0]}; {AGAIN}")
    tokenizer = tokenizers.Tokenizer(_model(ids, folder / "merges.txt"))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[_BOS, "$A", EOS], pair=None, special_tokens=[(_BOS, ids[_BOS]), (EOS, ids[EOS])]
    )
    return tokenizer


def _model(ids: dict[str, int], path: Path) -> models.Model:
    try:
        lines = read_bytes(path).decode().splitlines()
        # The first line may name the version of the file.
        rules = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        return models.BPE(ids, [(left, right) for left, right in rules])
    except OptionError:
        raise
    except Exception as error:  # the library raises bare Exception for a merge of unknown tokens
        raise OptionError(f"{path}: is not a list of merges ({error}); {AGAIN}") from None
