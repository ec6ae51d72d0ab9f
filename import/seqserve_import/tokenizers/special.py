"""Tokens beside the pieces of a vocabulary: control tokens, languages, and those added later.

Some checkpoints spell the control tokens otherwise, such as ``[PAD]`` and ``[SEP]``; the server
knows ``<s>``, ``<pad>``, ``</s>`` and ``<unk>``.

``added_tokens.json`` and ``added_tokens_decoder`` of ``tokenizer_config.json`` have the ids of
added tokens. ``additional_special_tokens`` may name further ones, which follow all others. Each is
one token wherever a text spells it.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, processors

from seqserve_import.checkpoint import MAX_SIZE
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
_CONFIG = "tokenizer_config.json"
_SAVE_AGAIN = "save the tokenizer again with the library that made it"
_ADDITIONAL = ("additional_special_tokens", "extra_special_tokens")


def respelled(folder: Path, tokens: Collection[str]) -> dict[str, str]:
    """Returns the server's spelling of control tokens that a vocabulary spells otherwise.

    The settings of the folder name the control tokens.
    """
    spelled: dict[str, str] = {}
    for name in ("special_tokens_map.json", _CONFIG):
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


class Vocabulary(NamedTuple):
    """The tokens of a checkpoint, those that were added among them."""

    tokens: list[str]
    """The place of each is its id."""
    symbols: list[AddedToken]
    """Added tokens that texts may spell."""
    hidden: list[str]
    """Added tokens that no text spells: control tokens, and languages, which a request names."""


def with_added(folder: Path, tokens: Sequence[str], rows: int = 0) -> Vocabulary:
    """Completes the tokens of a vocabulary.

    Args:
        rows: Embeddings of the model; 0 if they are not known.

    Raises:
        CheckpointError: A file is damaged, or an added token has the id of another one, two ids or
            no embedding.
    """
    completed, ids = list(tokens), {token: id_ for id_, token in enumerate(tokens)}
    added: dict[str, AddedToken] = {}
    for path, id_, token in sorted(_with_ids(folder), key=lambda entry: entry[1]):
        known = ids.get(token.content, id_)
        if known != id_:
            raise CheckpointError(
                f"{path}: the token {token.content!r:.80} has the id {id_}, but {known} in the"
                f" vocabulary; {_SAVE_AGAIN}"
            )
        _check_row(path, token, id_, rows)
        # A gap holds rows that no token has.
        completed += (f"<unused@{gap}>" for gap in range(len(completed), id_ + 1))
        if completed[id_] != token.content:
            if not completed[id_].startswith("<unused@"):
                raise CheckpointError(
                    f"{path}: the tokens {token.content!r:.80} and {completed[id_]!r:.80} have the"
                    f" same id, {id_}; {_SAVE_AGAIN}"
                )
            completed[id_] = token.content
            ids[token.content] = id_
            added[token.content] = token
    for path, token in _without_ids(folder):
        if token.content not in ids:
            _check_row(path, token, len(completed), rows)
            ids[token.content] = len(completed)
            completed.append(token.content)
            added[token.content] = token
    hidden = [token for token in added if token in CONTROLS or language_of(token)]
    symbols = [token for content, token in added.items() if content not in hidden]
    return Vocabulary(completed, symbols, hidden)


def add_missing(folder: Path, tokenizer: tokenizers.Tokenizer, spelled: Mapping[str, str]) -> None:
    """Adds the tokens with ids that a ``tokenizer.json`` lacks, as transformers does.

    Args:
        spelled: The spelling of its control tokens there, by that of the checkpoint.

    Raises:
        CheckpointError: One would get another id.
    """
    for path, id_, token in sorted(_with_ids(folder), key=lambda entry: entry[1]):
        content = spelled.get(token.content, token.content)
        if tokenizer.token_to_id(content) is None:
            is_hidden = content in CONTROLS or language_of(content)
            (tokenizer.add_special_tokens if is_hidden else tokenizer.add_tokens)([token])
            if (got := tokenizer.token_to_id(content)) != id_:
                raise CheckpointError(
                    f"{path}: the token {content!r:.80} has the id {id_}, but would get {got} after"
                    f" those of tokenizer.json; {_SAVE_AGAIN}"
                )


def agrees(folder: Path, tokens: Sequence[str]) -> bool:
    """Returns whether the ids of a checkpoint's tokens are their places in the vocabulary."""
    ids = {token: id_ for id_, token in enumerate(tokens)}
    # A token that the vocabulary lacks is appended.
    return all(
        ids.get(token.content, max(id_, len(tokens))) == id_ for _, id_, token in _with_ids(folder)
    )


def _check_row(path: Path, token: AddedToken, id_: int, rows: int) -> None:
    if rows and id_ >= rows:
        raise CheckpointError(
            f"{path}: names the token {token.content!r:.80}, for which the model has no"
            " embedding; remove it if no text has it"
        )


def read_settings(folder: Path) -> dict[str, Any]:
    """Returns ``tokenizer_config.json``; an empty object if the checkpoint has none."""
    return read_optional_object(folder / _CONFIG)


def read_size(folder: Path, name: str, default: int) -> int:
    """Returns a number of tokens from ``tokenizer_config.json``."""
    size = read_settings(folder).get(name, default)
    if type(size) is not int or not 0 <= size <= MAX_SIZE:
        raise CheckpointError(f"{folder / _CONFIG}: {name} is not from 0 to {MAX_SIZE:,}")
    return size


def _with_ids(folder: Path) -> Iterator[tuple[Path, int, AddedToken]]:
    path = folder / "added_tokens.json"
    for content, id_ in read_optional_object(path).items():
        yield path, _id(path, id_), _token(path, content)
    path = folder / _CONFIG
    decoder = read_optional_object(path).get("added_tokens_decoder", {})
    if not isinstance(decoder, dict):
        raise CheckpointError(f"{path}: added_tokens_decoder is not an object")
    for id_, token in decoder.items():
        yield path, _id(path, id_), _token(path, token)


def _without_ids(folder: Path) -> Iterator[tuple[Path, AddedToken]]:
    for name in ("special_tokens_map.json", _CONFIG):
        path = folder / name
        settings = read_optional_object(path)
        for key in _ADDITIONAL:
            for token in _listed(settings.get(key)):
                yield path, _token(path, token)


def _listed(tokens: Any) -> Iterable[Any]:
    if isinstance(tokens, dict):  # by names that only Python code uses
        return list(tokens.values())
    return tokens if isinstance(tokens, list) else []


def _id(path: Path, id_: Any) -> int:
    try:
        number = int(id_)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= MAX_SIZE:
        raise CheckpointError(f"{path}: {id_!r:.80} is not an id of a token")
    return number


def _token(path: Path, token: Any) -> AddedToken:
    """Makes the token of an entry, which is a text or an object with more about it."""
    details: Mapping[str, Any] = token if isinstance(token, dict) else {"content": token}
    content = details.get("content")
    if not isinstance(content, str) or not content:
        raise CheckpointError(f"{path}: {token!r:.80} is not a token")
    strips = {name: details.get(name) is True for name in ("lstrip", "rstrip", "single_word")}
    return AddedToken(content, normalized=False, **strips)
