"""Tokens that are no text: control tokens under one spelling, and languages.

Some checkpoints spell the control tokens otherwise, such as ``[PAD]`` and ``[SEP]``; the server
knows ``<s>``, ``<pad>``, ``</s>`` and ``<unk>``.
"""

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from seqserve_import.files import CheckpointError, read_optional_object
from seqserve_server.text.vocabulary import BOS, EOS, PAD, UNK

CONTROLS = (BOS, PAD, EOS, UNK)
NEEDED = (PAD, EOS, UNK)
_SETTINGS = {
    EOS: ("eos_token", "sep_token"),
    PAD: ("pad_token",),
    UNK: ("unk_token",),
    BOS: ("bos_token", "cls_token"),
}
"""Settings of a checkpoint's tokenizer that name each of them; the end goes before the begin."""
_OF_BERT = {EOS: "[SEP]", PAD: "[PAD]", UNK: "[UNK]", BOS: "[CLS]"}
"""Their spellings where no file names them, as BERT's class of tokenizers does not."""


def respelled(folder: Path, tokens: Collection[str]) -> dict[str, str]:
    """Returns the server's spelling of control tokens that a vocabulary spells otherwise.

    The settings of the folder name the control tokens.
    """
    spelled: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings = read_optional_object(folder / name)
        for ours, names in _SETTINGS.items():
            theirs = next((text for key in names if (text := _content(settings.get(key)))), "")
            if theirs in tokens and theirs not in CONTROLS and ours not in tokens:
                spelled.setdefault(theirs, ours)
    for ours, theirs in _OF_BERT.items():
        if theirs in tokens and ours not in tokens and ours not in spelled.values():
            spelled.setdefault(theirs, ours)
    return spelled


def _content(token: Any) -> str:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def check(tokenizer: tokenizers.Tokenizer, path: Path) -> None:
    """Refuses a tokenizer without the control tokens that every model needs."""
    for token in NEEDED:
        if tokenizer.token_to_id(token) is None:
            raise CheckpointError(
                f"{path}: has no token {token}, and neither special_tokens_map.json nor"
                " tokenizer_config.json says which one replaces it"
            )


def around(tokenizer: tokenizers.Tokenizer, *, has_front: bool = False) -> processors.PostProcessor:
    """Returns the step that appends ``</s>`` to a text, and prepends ``<s>`` if required."""
    front = [BOS] if has_front and tokenizer.token_to_id(BOS) is not None else []
    return processors.TemplateProcessing(
        single=[*front, "$A", EOS],
        pair=None,
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (*front, EOS)],
    )


_PUBLISHED = tomllib.loads(Path(__file__).with_name("languages.toml").read_text(encoding="utf-8"))
LANGUAGES = {family: codes.split() for family, codes in _PUBLISHED.items()}
"""The codes of the languages of each multilingual family, in the order of their ids."""
TAG = re.compile(r"<2([\w-]+)>")
"""The token of a language, as MADLAD and IndicBART spell them."""
_SPELLINGS = (
    # M2M-100, also with a region or a script: __pt-br__, __zh_Hant__.
    re.compile(r"__([a-z]{2,8}(?:[-_][A-Za-z0-9]{2,8})*)__"),
    # NLLB and mBART: a script, a region, or both.
    re.compile(r"([a-z]{2,3}_(?:[A-Z]{2}|[A-Z][a-z]{3}(?:_[A-Z]{2})?))"),
    TAG,
)


def language_of(token: str) -> str:
    """Returns the code of the language that a token names; nothing if it names none."""
    found = (spelling.fullmatch(token) for spelling in _SPELLINGS)
    return next((match[1] for match in found if match), "")
