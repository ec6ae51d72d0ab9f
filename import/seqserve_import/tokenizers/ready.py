"""Takes a ``tokenizer.json`` as it is."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from seqserve.errors import OptionError
from seqserve_import.tokenizers.files import AGAIN, read_bytes
from seqserve_import.tokenizers.segmentation import EOS, PAD, UNK, end_of_text

# Their files append or prepend the language that was set when they were written.
_MULTILINGUAL = ("m2m_100", "mbart")


def take(path: Path, model_type: str) -> tokenizers.Tokenizer:
    """Reads a ``tokenizer.json``; the only change is that a text gets no language token.

    Raises:
        OptionError: The file is damaged, lacks a control token or does not append ``</s>``.
    """
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(read_bytes(path))
    except OptionError:
        raise
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise OptionError(f"{path}: is not a tokenizer.json ({error}); {AGAIN}") from None
    for token in (PAD, EOS, UNK):
        if tokenizer.token_to_id(token) is None:
            raise OptionError(f"{path}: has no token {token}; {AGAIN}")
    if model_type in _MULTILINGUAL:
        tokenizer.post_processor = end_of_text(tokenizer)
    if tokenizer.encode("").tokens[-1:] != [EOS]:
        raise OptionError(
            f"{path}: does not append {EOS} to a text, as {model_type} wants it; save the "
            "tokenizer again with its own class, such as T5Tokenizer"
        )
    return tokenizer
