"""SentencePiece's way from text to what is divided into pieces, and back."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, decoders, normalizers

from seqserve.errors import OptionError
from seqserve_import.tokenizers.files import AGAIN
from seqserve_import.tokenizers.pb.pieces_pb2 import Model

SPACE = "▁"

# No text has it: it is not a character.
_HOLD = "\ufdd0"
_UNSORTED = [
    "\N{ARABIC SHADDA}",
    "\N{HEBREW POINT DAGESH OR MAPIQ}",
    "\N{HEBREW POINT RAFE}",
    "\N{HEBREW POINT SHIN DOT}",
    "\N{HEBREW POINT SIN DOT}",
]


def normalizer(path: Path, spec: Model.Normalizer) -> normalizers.Normalizer:
    """Returns the normaliser of the model file ``path``.

    Raises:
        OptionError: Its table of characters is damaged.
    """
    steps: list[normalizers.Normalizer] = []
    if spec.precompiled_charsmap:
        steps += _characters(path, spec.precompiled_charsmap)
    if spec.remove_extra_whitespaces:
        steps += [_replace(" {2,}", " "), _replace(r"\A ", "")]
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    if spec.remove_extra_whitespaces:
        steps.append(_replace(f"{SPACE}+\\z", ""))
    return normalizers.Sequence(steps)


def _characters(path: Path, table: bytes) -> list[normalizers.Normalizer]:
    """Returns what applies a table of characters.

    ``Precompiled`` alone loses text: of a letter and its marks it looks up only the shortest part
    that the table has. So all kinds of space are replaced first, and where the table composes
    letters and marks, NFC does so around it. A mark on a character such as ``ﬁ``, which the table
    replaces with others, is still lost.
    """
    try:
        precompiled = normalizers.Precompiled(table)
    except Exception as error:  # the library raises bare Exception for a damaged table
        raise OptionError(
            f"{path}: its table of characters is damaged ({error}); {AGAIN}"
        ) from None
    steps: list[normalizers.Normalizer] = [precompiled]
    if precompiled.normalize_str("e\N{COMBINING ACUTE ACCENT}") == "é":
        steps = _composing(precompiled)
    if spaces := _spaces(precompiled):
        steps.insert(0, _replace(f"[{spaces}]", " "))
    return steps


def _composing(precompiled: normalizers.Normalizer) -> list[normalizers.Normalizer]:
    """Returns NFC before a table, for letters and marks written apart, and after it, for those that
    it takes apart, such as halfwidth kana with voicing marks.

    NFC also sorts marks, and SentencePiece does not. What is written in another order, and often,
    is held in place by a character that NFC sorts nothing across.
    """
    held = [normalizers.Replace(mark, mark + _HOLD) for mark in _UNSORTED]
    nfc = normalizers.NFC()
    return [*held, nfc, precompiled, nfc, normalizers.Replace(_HOLD, "")]


def _spaces(precompiled: normalizers.Precompiled) -> str:
    """Returns the characters of up to three bytes that become a space, escaped for a class."""
    characters = (chr(code) for code in range(2**16) if not 0xD800 <= code < 0xE000)
    found = [one for one in characters if one != " " and precompiled.normalize_str(one) == " "]
    return "".join(f"\\x{{{ord(one):x}}}" for one in found)


def decoder(*, byte_fallback: bool) -> decoders.Decoder:
    """Returns what joins tokens to a text without spaces at its ends.

    A space within a token is no text: it marks tokens that are never found in a text.
    """
    steps: list[decoders.Decoder] = [decoders.Replace(" ", ""), decoders.Replace(SPACE, " ")]
    if byte_fallback:
        steps.append(decoders.ByteFallback())
    return decoders.Sequence([*steps, decoders.Fuse(), decoders.Replace(Regex(r"\A\s+|\s+\z"), "")])


def _replace(pattern: str, content: str) -> normalizers.Normalizer:
    return normalizers.Replace(Regex(pattern), content)
