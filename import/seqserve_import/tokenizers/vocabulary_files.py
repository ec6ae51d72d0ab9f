"""Tokenizers in files of text: ``tokenizer.json`` as it is but for the spelling of control tokens,
``vocab.txt`` of BERT, ``vocab.json`` and ``merges.txt`` of BART.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from seqserve.errors import OptionError
from seqserve_import.files import AGAIN, CheckpointError, in_order_of_ids, read_bytes, read_object
from seqserve_import.tokenizers.special import (
    CONTROLS,
    Vocabulary,
    add_missing,
    around,
    check,
    read_settings,
    respelled,
    with_added,
)
from seqserve_server.text.library import parsed
from seqserve_server.text.vocabulary import BOS, EOS, UNK

# Their files append or prepend the language that was set when they were written.
_MULTILINGUAL = ("m2m_100", "mbart")


def read_tokenizer(folder: Path, model_type: str) -> tokenizers.Tokenizer:
    """Reads the ``tokenizer.json`` of a checkpoint, with the tokens that its settings add.

    A text gets no language token, and an end token where the file appends none.

    Raises:
        CheckpointError: The file is damaged, lacks a control token, or adds others to a text.
    """
    path = folder / "tokenizer.json"
    content = read_bytes(path)
    tokenizer = _made(path, content)
    spelled = respelled(folder, tokenizer.get_vocab())
    front, back = _around(tokenizer, spelled)
    if spelled:
        tokenizer = _made(path, _respell(json.loads(content), spelled))
    check(tokenizer, path)
    if model_type in _MULTILINGUAL:
        tokenizer.post_processor = around(tokenizer)
    elif back not in ([], [EOS]) or (back == [] and front not in ([], [BOS])):
        raise CheckpointError(
            f"{path}: its post_processor adds {' '.join([*front, '…', *back]):.80} to a text; only"
            f" {BOS} in front and {EOS} at the end are supported"
        )
    elif spelled or not back:
        tokenizer.post_processor = around(tokenizer, has_front=bool(front))
    add_missing(folder, tokenizer, spelled)
    return tokenizer


def _around(
    tokenizer: tokenizers.Tokenizer, spelled: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Returns the tokens that a tokenizer puts in front of a text, and those after it."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoding = tokenizer.encode("a")
    tokens = [spelled.get(token, token) for token in encoding.tokens]
    own = [at for at, sequence in enumerate(encoding.sequence_ids) if sequence is not None]
    if own:
        return tokens[: own[0]], tokens[own[-1] + 1 :]
    end = tokens.index(EOS) if EOS in tokens else len(tokens)  # it drops unknown letters
    return tokens[:end], tokens[end:]


def _made(path: Path, content: bytes) -> tokenizers.Tokenizer:
    try:
        return parsed(content)
    except OptionError as error:
        raise CheckpointError(f"{path}: {error}; {AGAIN}") from None


def _respell(content: dict[str, Any], spelled: Mapping[str, str]) -> bytes:
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


def _add_tokens(tokenizer: tokenizers.Tokenizer, path: Path, added: Vocabulary, mask: str) -> None:
    """Marks the tokens of a tokenizer that no text becomes, and those that are always one token."""
    check(tokenizer, path)
    known = [
        AddedToken(token, normalized=False)
        for token in (*CONTROLS, mask, *added.hidden)
        if tokenizer.token_to_id(token) is not None
    ]
    tokenizer.add_special_tokens(known)
    tokenizer.add_tokens(added.symbols)


WORD_PIECES_FILE = "vocab.txt"


def convert_word_pieces(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a checkpoint with the file."""
    path, settings = folder / WORD_PIECES_FILE, read_settings(folder)
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
    _add_tokens(tokenizer, path, added, "[MASK]")
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case") is not False,
        handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
        strip_accents=settings.get("strip_accents"),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = around(tokenizer, has_front=True)
    return tokenizer


BYTE_LEVEL_FILES = ("vocab.json", "merges.txt")
# They put nothing in front of a text.
_WITHOUT_FRONT = ("GPT2",)


def convert_byte_level(folder: Path, rows: int) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a checkpoint with the two files."""
    vocabulary, merges = (folder / name for name in BYTE_LEVEL_FILES)
    tokens = in_order_of_ids(vocabulary, read_object(vocabulary))
    added = with_added(folder, tokens, rows)
    spelled = respelled(folder, added.tokens)
    ids = {spelled.get(token, token): id_ for id_, token in enumerate(added.tokens)}
    settings = read_settings(folder)
    tokenizer = tokenizers.Tokenizer(_model(ids, merges))
    _add_tokens(tokenizer, vocabulary, added, "<mask>")
    has_space = settings.get("add_prefix_space") is True
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=has_space)
    tokenizer.decoder = decoders.ByteLevel()
    has_front = not str(settings.get("tokenizer_class")).startswith(_WITHOUT_FRONT)
    tokenizer.post_processor = around(tokenizer, has_front=has_front)
    return tokenizer


def _model(ids: dict[str, int], path: Path) -> models.Model:
    try:
        lines = read_bytes(path).decode().splitlines()
        # The first line may name the version of the file.
        rules = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        return models.BPE(ids, [(left, right) for left, right in rules])
    except CheckpointError:
        raise
    except Exception as error:  # the library raises bare Exception for a merge of unknown tokens
        raise CheckpointError(f"{path}: is not a list of merges ({error}); {AGAIN}") from None
