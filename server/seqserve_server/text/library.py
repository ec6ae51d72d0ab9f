"""Tokenizers of the library ``tokenizers``, whose files may be broken, or made to do harm.

Two things would end a server that serves other models too: a panic of the library, which is no
``Exception``; and steps that each double a text, thirty of which make gigabytes of a letter. So a
panic becomes an error, and a file is refused whose steps may make too much of a character.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

import tokenizers

from seqserve.errors import OptionError, SeqserveError

MAX_GROWTH = 4096
"""Characters that may come of one. Imported tokenizers make at most 1,500 by the rules below, which
know little of texts; 18 of the worst character there is."""
_MAX_MARK = 256
"""Characters of what a model writes for unknown characters, or adds to tokens."""

_MAX_STEPS = 256
_PLAIN = ["Nmt", "Strip", "StripAccents", "Digits", "Punctuation", "Split", "FixedLength", "Fuse"]
_PLAIN += ["BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts", "ByteFallback"]
_PLAIN += ["Whitespace", "WhitespaceSplit"]
_FACTORS = dict.fromkeys(_PLAIN, 1) | {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3}
# One that adds to every part of a text counts as if each character were a part.
_FACTORS |= {"BertNormalizer": 36, "ByteLevel": 5, "Metaspace": 2, "WordPiece": 2, "CTC": 3}
_FACTORS |= {"BPEDecoder": 3, "BertProcessing": 3, "RobertaProcessing": 3}
"""How many characters a step makes of one, at most."""
# An expression that matches no empty text: its first atom is one character or more.
_CONSUMING = re.compile(
    r"(?:\[(?:[^\[\]\\]|\\.)+\]|\\[sSdDwWxp](?:\{[^}]*\})?|[\w '`-])(?![*?]|\{0*[,}])[^|]*"
)


class TokenizerFault(SeqserveError):
    """The library failed on a text, or on a file, by a panic."""


def fault_of(error: BaseException) -> BaseException:
    """Returns what to raise for an error of the library: a panic becomes an ``Exception``."""
    is_panic = type(error).__name__ == "PanicException"
    return TokenizerFault(f"tokenizer: the library failed: {error}") if is_panic else error


def read_library(path: Path) -> tokenizers.Tokenizer:
    """Reads a ``tokenizer.json``; OptionError if it is none, or may make too much of a text."""
    try:
        return parsed(path.read_bytes())
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def parsed(content: bytes) -> tokenizers.Tokenizer:
    """Makes the tokenizer of a ``tokenizer.json``; OptionError if it is none, or makes too much."""
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
    """Raises OptionError, which names the step, if a tokenizer may make too much of a text."""
    divided = _grown("normalizers", library.normalizer, 1)
    _grown("pretokenizers", library.pre_tokenizer, divided)
    _grown("decoders", library.decoder, 1)
    _grown("processors", library.post_processor, 1)
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if len(getattr(library.model, name, None) or "") > _MAX_MARK:
            raise OptionError(f"{name} has more than {_MAX_MARK} characters")


def _grown(group: str, component: Any, size: float) -> float:
    """Returns how many characters ``size`` of them may become."""
    begin, images = size, dict[str, str]()
    # As the library understood the file, whatever else that says.
    steps = [json.loads(component.__getstate__())] if component else []
    while steps:
        step = steps.pop()
        kind, pattern = step["type"], step.get("pattern", {}).get("String", "")
        if kind == "Sequence":
            steps += reversed(step[group])
        elif kind == "Replace" and len(pattern) == 1:
            # Exact for several in a row, which mostly replace different characters.
            size = begin * _replaced(images, pattern, step["content"])
        elif (growth := _growth(step)) is None:
            raise OptionError(f"{kind} of its {group} is not known to this version")
        else:
            begin = size = size * growth[0] + growth[1]
            images = {}
        if len(steps) > _MAX_STEPS:
            raise OptionError(f"has more than {_MAX_STEPS} {group}")
        if size > MAX_GROWTH:
            raise OptionError(
                f"{kind} of its {group} may make more than {MAX_GROWTH:,} characters of one; use"
                " the tokenizer of the model's origin"
            )
    return size


def _replaced(images: dict[str, str], pattern: str, content: str) -> int:
    """Adds a replacement to what each character has become; returns the most of one."""
    for character in {pattern, *content}:
        images.setdefault(character, character)
    for character, image in images.items():
        if len(image) + image.count(pattern) * len(content) > 2 * MAX_GROWTH:
            return MAX_GROWTH + 1
        images[character] = image.replace(pattern, content)
    return max(1, *map(len, images.values()))


def _growth(step: dict[str, Any]) -> tuple[float, float] | None:
    """Returns how many characters a step makes of one, and how many it adds to a text."""
    match step["type"]:
        case "Replace":
            added, literal = len(step["content"]), step["pattern"].get("String")
            if literal or _CONSUMING.fullmatch(step["pattern"].get("Regex", "")):
                return max(1.0, added / len(literal or "x")), 0
            return 1 + added, added
        case "Prepend":
            return 1, len(step["prepend"])
        case "Precompiled":
            # The texts of SentencePiece's table follow its index.
            table = base64.b64decode(step["precompiled_charsmap"])
            texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
            return max(1, *(len(text.decode(errors="replace")) for text in texts)), 0
        case "TemplateProcessing":
            count = sum("SpecialToken" in part for part in step["single"])
            ids = [len(token["ids"]) for token in step["special_tokens"].values()]
            return len(step["single"]) - count, count * max(ids, default=1)
        case kind:
            return (_FACTORS[kind], 0) if kind in _FACTORS else None
