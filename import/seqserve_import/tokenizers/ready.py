"""Takes a ``tokenizer.json`` as it is, but for the spelling of control tokens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from seqserve.errors import OptionError
from seqserve_import.files import AGAIN, CheckpointError, read_bytes
from seqserve_import.tokenizers.control_tokens import around, check, respelled
from seqserve_server.text.library import parsed
from seqserve_server.text.vocabulary import EOS

# Their files append or prepend the language that was set when they were written.
_MULTILINGUAL = ("m2m_100", "mbart")


def take(folder: Path, model_type: str) -> tokenizers.Tokenizer:
    """Reads the ``tokenizer.json`` of a checkpoint.

    A text gets no language token, and an end token where the file appends none.

    Raises:
        CheckpointError: The file is damaged, or lacks a control token.
    """
    path = folder / "tokenizer.json"
    content = read_bytes(path)
    tokenizer = _made(path, content)
    has_front = len(tokenizer.encode("").ids) > 1
    spelled = respelled(folder, tokenizer.get_vocab())
    if spelled:
        tokenizer = _made(path, _respell(json.loads(content), spelled))
    check(tokenizer, path)
    if model_type in _MULTILINGUAL:
        tokenizer.post_processor = around(tokenizer)
    elif tokenizer.encode("").tokens[-1:] != [EOS]:
        tokenizer.post_processor = around(tokenizer, has_front=has_front)
    return tokenizer


def _made(path: Path, content: bytes) -> tokenizers.Tokenizer:
    try:
        return parsed(content)
    except OptionError as error:
        raise CheckpointError(f"{path}: {error}; {AGAIN}") from None


def _respell(content: dict[str, Any], spelled: Mapping[str, str]) -> bytes:
    """Writes control tokens as the server spells them, wherever the file names them."""
    model, vocabulary = content["model"], content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {spelled.get(token, token): id_ for token, id_ in vocabulary.items()}
    else:
        model["vocab"] = [[spelled.get(token, token), score] for token, score in vocabulary]
    if model.get("unk_token") in spelled:
        model["unk_token"] = spelled[model["unk_token"]]
    for token in content.get("added_tokens") or ():
        token["content"] = spelled.get(token["content"], token["content"])
    content["post_processor"] = None
    return json.dumps(content).encode()
