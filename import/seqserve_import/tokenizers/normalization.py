"""SentencePiece's way from text to what is divided into pieces, and back."""

from pathlib import Path

from tokenizers import Regex, decoders, normalizers

from seqserve_import.files import AGAIN, CheckpointError
from seqserve_import.tokenizers.pieces_pb2 import Model

SPACE = "▁"

# No text has them: they are not characters.
_HOLD, _APART = "\ufdd0", "\ufdd1"
# No table replaces characters beyond these, which are unassigned or private.
_REPLACEABLE = (*range(0xD800), *range(0xE000, 0x30000))
_UNSORTED = [
    "\N{ARABIC SHADDA}",
    "\N{HEBREW POINT DAGESH OR MAPIQ}",
    "\N{HEBREW POINT RAFE}",
    "\N{HEBREW POINT SHIN DOT}",
    "\N{HEBREW POINT SIN DOT}",
]


def normalizer(path: Path, spec: Model.Normalizer) -> normalizers.Normalizer:
    """Returns the normaliser of the model file ``path``."""
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
    that the table has. So all kinds of space are replaced first, a mark on a character that the
    table replaces is kept apart from it, and where the table composes letters and marks, NFC does
    so around it.
    """
    try:
        precompiled = normalizers.Precompiled(table)
    except Exception as error:  # the library raises bare Exception for a damaged table
        raise CheckpointError(
            f"{path}: its table of characters is damaged ({error}); {AGAIN}"
        ) from None
    spaces, single, several = _replaced(precompiled)
    steps: list[normalizers.Normalizer] = [precompiled, normalizers.Replace(_APART, "")]
    for codes, mark in (single, _APART), (several, _HOLD):
        if codes:
            steps.insert(0, _replace(rf"(?=\p{{M}})(?<={_class(codes)})", mark))
    if precompiled.normalize_str("e\N{COMBINING ACUTE ACCENT}") == "é":
        steps = _composing(steps)
    if spaces:
        steps.insert(0, _replace(_class(spaces), " "))
    return [*steps, normalizers.Replace(_HOLD, "")]


def _composing(table: list[normalizers.Normalizer]) -> list[normalizers.Normalizer]:
    """Returns NFC before a table, for letters and marks written apart, and after it, for those that
    it takes apart, such as halfwidth kana with voicing marks.

    NFC also sorts combining marks, but SentencePiece does not. A character that NFC does not sort
    across keeps frequent sequences in another order.
    """
    held = [normalizers.Replace(mark, mark + _HOLD) for mark in _UNSORTED]
    nfc = normalizers.NFC()
    return [*held, nfc, *table, nfc]


def _replaced(precompiled: normalizers.Precompiled) -> tuple[list[int], list[int], list[int]]:
    """Returns the characters that become a space, another character, and several or none.

    A mark composes with the one character that another has become, not with the last of several.
    """
    spaces: list[int] = []
    single: list[int] = []
    several: list[int] = []
    for code in _REPLACEABLE:
        text = precompiled.normalize_str(chr(code))
        if text != chr(code):
            group = spaces if text == " " else single if len(text) == 1 else several
            group.append(code)
    return spaces, single, several


def _class(codes: list[int]) -> str:
    """Returns the regular expression of some characters, in ascending order, as few ranges."""
    ranges: list[list[int]] = []
    for code in codes:
        if not ranges or code != ranges[-1][1] + 1:
            ranges.append([code, code])
        ranges[-1][1] = code
    return "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges) + "]"


def decoder(*, byte_fallback: bool) -> decoders.Decoder:
    """Returns what joins tokens to a text without spaces at its ends.

    A space within a token does not occur in texts: it marks tokens that are never found in a text.
    """
    steps: list[decoders.Decoder] = [decoders.Replace(" ", ""), decoders.Replace(SPACE, " ")]
    if byte_fallback:
        steps.append(decoders.ByteFallback())
    return decoders.Sequence([*steps, decoders.Fuse(), decoders.Replace(Regex(r"\A\s+|\s+\z"), "")])


def _replace(pattern: str, content: str) -> normalizers.Normalizer:
    return normalizers.Replace(Regex(pattern), content)
