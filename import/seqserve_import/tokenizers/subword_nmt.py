"""Argos' division by ``bpe.model``: words as Moses divides them, then merges of subword-nmt.

Moses spells some characters in XML (``&quot;``); here the vocabulary is spelled as texts are, which
gives the same ids. Not taken over are Moses' lists of abbreviations, except for the letters of
names, and its way to set quotation marks: they keep the spaces around them.

Sources: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units"; the
tokenizer and the normaliser of punctuation of Moses.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from seqserve_import.files import AGAIN, CheckpointError, read_bytes
from seqserve_import.tokenizers.special import CONTROLS
from seqserve_server.text.vocabulary import UNK

FILE = "bpe.model"
_END, _GOES_ON = "</w>", "@@"
_VERSION = "#version: 0.2"

_PUNCTUATION = {
    **dict.fromkeys("„“”«»", '"'),
    **dict.fromkeys("`´‘‚’", "'"),
    **{"–": "-", "—": " - ", "…": "..."},
}
_XML = {
    **{"&quot;": '"', "&apos;": "'", "&lt;": "<", "&gt;": ">"},
    **{"&#124;": "|", "&#91;": "[", "&#93;": "]", "&amp;": "&"},
}
_QUOTE_BEHIND, _QUOTE_BEFORE = ("en",), ("de", "es", "fr")
"""Languages whose punctuation Moses puts before a quotation mark, or after it."""
_ELISION = ("fr", "it")

_LETTER = r"\p{Alphabetic}\p{M}"
_WORD = rf"{_LETTER}\p{{Nd}}"
# A letter of a name, or what follows a point within a word: U.S., e.g., Ph.D.
_SHORT = r"(?<!\b\p{Lu})(?<!\.\p{L}|\.\p{L}{2}|\.\p{L}{3})"
_POINT = rf"{_SHORT}(?<!\.)\.(?![.`\-{_WORD}])(?!\s+\p{{Ll}})"


def convert_bpe(
    path: Path, tokens: Sequence[str], rows: int, source: str, target: str
) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a package, with the ids of its vocabulary.

    Args:
        tokens: The vocabulary, in which ``@@`` marks pieces that do not end a word.
        rows: Number of embeddings; pieces that the vocabulary lacks come after them.
    """
    ids: dict[str, int] = {}
    hidden = []
    for id_, token in enumerate(tokens):
        spelled = token if token in CONTROLS else _spelled(token)
        if spelled in ids:
            spelled = f"<unused_{id_}>"
        if token in CONTROLS or spelled.startswith("<unused_"):
            hidden.append(spelled)
        ids[spelled] = id_
    merges = list(_merges(path))
    pieces = dict.fromkeys(piece for one, two in merges for piece in (one, two, one + two))
    missing = [piece for piece in pieces if piece not in ids]
    filled = [f"<unused{number}>" for number in range(rows - len(ids))]
    for token in (*filled, *missing):
        ids[token] = len(ids)
    try:
        model = models.BPE(ids, merges, unk_token=UNK, end_of_word_suffix=_END, fuse_unk=False)
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path}: is not a list of merges ({error}); {AGAIN}") from None
    made = tokenizers.Tokenizer(model)
    special = [token for token in (*hidden, *filled, *missing) if token]
    made.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    made.normalizer = _normalizer(source)
    made.pre_tokenizer = pre_tokenizers.Sequence(list(_splits(source)))
    made.decoder = _decoder(target)
    return made


def _spelled(token: str) -> str:
    """Returns a token as merges spell it: marked at the end of a word, not within."""
    is_within = token.endswith(_GOES_ON) and token != _GOES_ON
    own = token.removesuffix(_GOES_ON) if is_within else token
    for escaped, character in _XML.items():
        own = own.replace(escaped, character)
    return own if is_within else own + _END


def _merges(path: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = read_bytes(path).decode().splitlines()
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: is not UTF-8; {AGAIN}") from None
    if not lines or lines[0] != _VERSION:
        raise CheckpointError(
            f"{path}: does not begin with `{_VERSION}`; other versions are not supported"
        )
    seen = set()
    for number, line in enumerate(lines[1:], 2):
        pair = line.strip("\r ").split(" ")
        if len(pair) != 2:
            raise CheckpointError(f"{path}: line {number} is not a pair of pieces; {AGAIN}")
        spelled = [piece for part in pair for piece in [_unescaped(part)] if piece is not None]
        # The step that joins parts of XML to one character has no counterpart.
        if len(spelled) == 2 and (merge := (spelled[0], spelled[1])) not in seen:
            seen.add(merge)
            yield merge


def _unescaped(piece: str) -> str | None:
    """Returns a piece as texts spell it; None if it is a part of a character in XML."""
    for escaped, character in _XML.items():
        inner = escaped.strip("&;#")
        if piece != escaped and (piece == f"&{inner}" or piece == f"{inner};"):
            return None
        piece = piece.replace(escaped, character)
    return piece


def _normalizer(language: str) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace(theirs, ours) for theirs, ours in _PUNCTUATION.items()
    ]
    between = "," if language in (*_QUOTE_BEFORE, "cs") else "."
    steps.append(normalizers.Replace(Regex(r"(?<=\d)\x{a0}(?=\d)"), between))
    steps.append(normalizers.Replace("''", '"'))
    if language in _QUOTE_BEHIND:
        steps += [normalizers.Replace(f'"{mark}', f'{mark}"') for mark in ",."]
    if language in _QUOTE_BEFORE:
        steps.append(normalizers.Replace(',"', '",'))
        steps.append(normalizers.Replace(Regex(r'\."(?=\s*[^<\s])'), '".'))
    return normalizers.Sequence(steps)


def _splits(language: str) -> Iterator[pre_tokenizers.PreTokenizer]:
    """Yields the steps of Moses' tokenizer, each of which divides what the last one left."""

    def split(pattern: str, behavior: str = "isolated") -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Split(Regex(pattern), behavior)

    yield split(_POINT)
    if language in ("en", *_ELISION):
        inner = rf"(?<=[{_LETTER}])'(?=[{_LETTER}])"
        inner = rf"{inner}|(?<=\p{{Nd}})'(?=s)" if language == "en" else inner
        yield split(rf"(?!{inner})'")
    else:
        yield split("'")
    yield split(r",(?!\p{N})|(?<!\p{N}),")
    yield split(r"\s+", "removed")
    yield split(rf"[^{_WORD}\s.'`,\-]")
    yield split(r"\.{2,}")
    if language in ("en", *_ELISION):
        yield split("'", "merged_with_next" if language == "en" else "merged_with_previous")


def _decoder(language: str) -> decoders.Decoder:
    left = r",.\})\]" if language == "fr" else r",.?!:;%\\})\]"
    patterns = [rf" (?=[{left}]+(?:\s|\z))", r"(?<=[(\[{¿¡\p{Sc}]) "]
    if language == "en":
        patterns.append(rf" (?='[{_LETTER}])")
    if language in (*_ELISION, "ga"):
        patterns.append(rf"(?<=[{_LETTER}]') (?=[{_LETTER}])")
    steps = [decoders.Replace(escaped, character) for escaped, character in _XML.items()]
    steps += [decoders.Replace(Regex(pattern), "") for pattern in patterns]
    trim = decoders.Replace(Regex(r"\A\s+|\s+\z"), "")
    return decoders.Sequence([decoders.BPEDecoder(_END), decoders.Fuse(), *steps, trim])
