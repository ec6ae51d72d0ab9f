"""Tokenizers of the library ``tokenizers``, whose files may be broken, or made to do harm.

Two things would end a server that serves other models too: a panic of the library, which is no
``Exception``; and steps that each double a text, thirty of which make gigabytes of a letter. So a
panic becomes an error, and a file is refused whose steps may make too much of a character.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tokenizers

from seqserve.errors import OptionError, SeqserveError

MAX_GROWTH = 4096
"""Characters that may come of one. Imported tokenizers make at most 1,500 by the rules below, which
know little of texts; 18 of the worst character there is."""
_MAX_MARK = 256
"""Characters of what a model writes for unknown characters, or adds to tokens."""

# Of each step: how many characters it makes of one, and how many it adds. One that adds to every
# part of a text counts as if each character were a part.
_FACTORS = {
    "normalizers": dict.fromkeys(["Nmt", "Strip", "StripAccents"], (1, 0))
    | dict.fromkeys(["NFKC", "NFKD"], (18, 0))
    | {"NFC": (3, 0), "NFD": (4, 0), "Lowercase": (3, 0), "BertNormalizer": (36, 0)}
    | {"ByteLevel": (4, 0)},
    "pretokenizers": dict.fromkeys(
        ["BertPreTokenizer", "CharDelimiterSplit", "Digits", "FixedLength", "Punctuation"], (1, 0)
    )
    | dict.fromkeys(["Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit"], (1, 0))
    | {"ByteLevel": (5, 0), "Metaspace": (2, 0)},
    "decoders": dict.fromkeys(["ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Strip"], (1, 0))
    | {"BPEDecoder": (3, 0), "CTC": (3, 0), "WordPiece": (2, 0)},
    "processors": {
        "BertProcessing": (1, 2),
        "RobertaProcessing": (1, 2),
        "ByteLevel": (1, 0),
    },
}
# An expression that matches no empty text: its first atom is one character or more.
_CONSUMING = re.compile(
    r"(?:\[(?:[^\[\]\\]|\\.)+\]|\\[sSdDwWxp](?:\{[^}]*\})?|[\w '`-])(?![*?]|\{0*[,}])[^|]*"
)


class TokenizerFault(SeqserveError):
    """The library failed on a text, or on a file, by a panic."""


def fault_of(error: BaseException) -> BaseException:
    """Returns what to raise for an error of the library: a panic becomes an ``Exception``.

    For the end of a ``try`` around its calls, which costs them nothing.
    """
    is_panic = type(error).__name__ == "PanicException"
    return TokenizerFault(f"tokenizer: the library failed: {error}") if is_panic else error


def read_library(path: Path) -> tokenizers.Tokenizer:
    """Reads a ``tokenizer.json``.

    Raises:
        OptionError: It cannot be read, or is none, or may make too much of a text.
    """
    try:
        return parsed(path.read_bytes())
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def parsed(content: bytes) -> tokenizers.Tokenizer:
    """Makes the tokenizer of the content of a ``tokenizer.json``, and tries it on an empty text.

    Raises:
        OptionError: It is none, or may make too much of a text.
    """
    try:
        library = tokenizers.Tokenizer.from_buffer(content)
        check_growth(library)
        library.encode("")
    except OptionError:
        raise
    except BaseException as error:
        if not isinstance(fault := fault_of(error), Exception):
            raise
        # The library raises bare Exception for a malformed file.
        raise OptionError(f"is not a tokenizer.json: {fault}") from None
    return library


def check_growth(library: tokenizers.Tokenizer) -> None:
    """Refuses a tokenizer that may make too much of a text, or of nothing.

    Raises:
        OptionError: It may, or has a step that is not known; the message names the step.
    """
    divided = _grown("normalizers", library.normalizer, 1)
    _grown("pretokenizers", library.pre_tokenizer, divided)
    _grown("decoders", library.decoder, 1)
    _grown("processors", library.post_processor, 1)
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        mark = getattr(library.model, name, None)
        if mark and len(mark) > _MAX_MARK:
            raise OptionError(f"{name} has more than {_MAX_MARK} characters")


def _grown(group: str, component: Any, size: float) -> float:
    """Returns how many characters ``size`` of them may become."""
    images: dict[str, str] = {}
    begin = size
    for step in _steps(group, component):
        kind, pattern = step["type"], step.get("pattern", {}).get("String", "")
        if kind == "Replace" and len(pattern) == 1:
            # Exact for several in a row, which mostly replace different characters.
            if not images:
                begin = size
            size = begin * _replaced(images, pattern, step["content"])
        else:
            images = {}
            factor, added = _growth(group, kind, step)
            size = size * factor + added
        if size > MAX_GROWTH:
            raise OptionError(
                f"{kind} of its {group} may make more than {MAX_GROWTH:,} characters of one;"
                " take the tokenizer from where the model is from"
            )
    return size


def _steps(group: str, component: Any) -> Iterator[dict[str, Any]]:
    """Lists the steps as the library understood them, whatever else the file says."""

    def flat(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if step["type"] != "Sequence":
            yield step
        for inner in step.get(group, ()):
            yield from flat(inner)

    if component is not None:
        yield from flat(json.loads(component.__getstate__()))


def _replaced(images: dict[str, str], pattern: str, content: str) -> int:
    """Adds a replacement to what each character has become; returns the most it has."""
    images.setdefault(pattern, pattern)
    for character in set(content):
        images.setdefault(character, character)
    for character, image in images.items():
        if len(image) + image.count(pattern) * len(content) > 2 * MAX_GROWTH:
            return MAX_GROWTH + 1
        images[character] = image.replace(pattern, content)
    return max(1, *map(len, images.values()))


def _growth(group: str, kind: str, step: dict[str, Any]) -> tuple[float, float]:
    known = _FACTORS[group].get(kind)
    if known is not None:
        return known
    if kind not in _OTHERS:
        raise OptionError(f"{kind} of its {group} is not known to this version")
    return _OTHERS[kind](step)


def _replacement(step: dict[str, Any]) -> tuple[float, float]:
    added, pattern = len(step["content"]), step["pattern"]
    if literal := pattern.get("String"):
        return max(1.0, added / len(literal)), 0
    if _CONSUMING.fullmatch(pattern.get("Regex", "")):
        return max(1, added), 0
    return 1 + added, added


def _table(step: dict[str, Any]) -> tuple[float, float]:
    """Reads the texts of a table of SentencePiece, which follow its index."""
    table = base64.b64decode(step["precompiled_charsmap"])
    texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
    return max(1, *(len(text.decode(errors="replace")) for text in texts)), 0


def _template(step: dict[str, Any]) -> tuple[float, float]:
    parts: Iterable[dict[str, Any]] = step["single"]
    special = [part["SpecialToken"]["id"] for part in parts if "SpecialToken" in part]
    ids = step["special_tokens"]
    added = sum(len(ids[token]["ids"]) if token in ids else 1 for token in special)
    return len(step["single"]) - len(special), added


_OTHERS: dict[str, Callable[[dict[str, Any]], tuple[float, float]]] = {
    "Precompiled": _table,
    "Prepend": lambda step: (1, len(step["prepend"])),
    "Replace": _replacement,
    "TemplateProcessing": _template,
}
