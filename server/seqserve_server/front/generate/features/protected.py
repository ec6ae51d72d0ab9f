"""Protected texts: placeholders, addresses, and what the caller names, come back as they are."""

import re
from collections.abc import Sequence
from functools import cache

from seqserve.v1 import generation_pb2
from seqserve.words import PLACEHOLDER
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import Finished, Hypothesis
from seqserve_server.front.generate.alignment import Alignment
from seqserve_server.front.generate.protected_places import is_missing, occurrences, restore
from seqserve_server.front.generate.records import ID_BYTES, STRING_BYTES, Asked, Feature, Part
from seqserve_server.text.splitting import Span

_MAX_CHARACTERS = 256
_TLDS = "com|org|net|info|edu|gov|io|dev|app|ai|eu|de|at|ch|uk|fr|es|it|nl|pl|pt|br|cz|ru|jp|kr|cn"
_EXTENSIONS = (
    "txt|md|pdf|docx?|xlsx?|pptx?|odt|ods|epub|csv|tsv|json|xml|ya?ml|toml|ini|cfg|conf|log|sql|db|html?"
    "|css|jsx?|tsx?|py|rs|go|java|cpp|sh|bat|exe|dll|so|zip|gz|tgz|bz2|7z|rar|iso|dmg|deb|rpm|png|jpe?g"
    "|gif|svg|webp|mp3|mp4|wav|flac|mkv|avi|mov|po|bin|onnx"
)
# Emoji of Unicode 16 and the characters that join and change them, UTS 51, ED-17a.
_EMOJI = (
    "[\U0001f000-\U0001faff\u203c\u2049\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299]"
)
_EMOJI_PART = "[\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
_NOT_PLACEHOLDERS = "|".join(
    [
        r"</?[A-Za-z][\w:.-]*(?:\s[^<>]{0,500})?/?>",
        r"`[^`\n]{1,200}`|\]\([^()\s]+\)",
        r"\[\[\w+\]\]|\[[A-Z][A-Z_]+\]|\b__\w+__\b",
        # An address without its scheme, and a file.
        rf"(?<![\w.@/-])(?:[a-z0-9-]+\.)+(?:{_TLDS})(?![\w-]|\.\w)(?:[/?#][^\s<>()\[\]]*[\w/=])?",
        r"(?<![\w/.~])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?|(?<!\w)(?:~|\.{1,2})/[\w.@+/-]*\w",
        r"(?<!\w)[A-Za-z]:\\[\w.\\-]*\w",
        rf"(?<![\w.-])[\w-]+(?:\.[\w-]+)*\.(?:{_EXTENSIONS})(?![\w-]|\.\w)",
        # Versions: 1.2.3, v2.0, 0.85.x, 3.1.0-rc1. Two numbers alone may be a decimal fraction.
        r"(?<![\w.])(?:[vV]\d+(?:\.\d+)*|\d+(?:\.\d+){2,}|\d+(?:\.\d+)*\.x)(?:[-+][A-Za-z][\w.]*\w|[-+]\d+)?(?![\w])",
        # Codes: KX7-4492, MP3, COVID-19.
        r"(?<![\w-])[A-Z]+(?:\d|-\d)[A-Z\d]*(?:-[A-Z\d]+)*(?![\w-])",
        r"(?<!\w)\$[A-Za-z_]\w*|(?<![\w-])--[a-z][\w-]*\w",
        r"(?<!\w)[A-Za-z]\w*(?:_\w+)+(?:\(\))?|(?<![\w.])[A-Za-z_][\w.]*\(\)",
        r"(?<![\w&#])#[^\W\d_]\w*|(?<![\w@.])@[A-Za-z_][\w]*",
        rf"(?:{_EMOJI}{_EMOJI_PART}*(?:\u200d{_EMOJI}{_EMOJI_PART}*)*|[0-9#*]\ufe0f?\u20e3)",
    ]
)


# What every placeholder has; most sentences have none of it.
_SIGN = re.compile(rf"[{{}}%$<@#`/\\_\[&\u20e3]|[^\s.]\.[^\s.]|--|[A-Zv]-?\d|\(\)|\]\(|{_EMOJI}")
_CHARACTER_BYTES = 4


def protected(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it."""
    options = asked.options
    for text in options.keep:
        if not text.strip() or len(text) > _MAX_CHARACTERS:
            reason = f"have one of {len(text)} characters; each has 1 to {_MAX_CHARACTERS}"
            raise InvalidRequest("options.keep", f"{reason}, and not white space alone")
    return _Protected(asked) if options.keep or options.keep_placeholders else None


class _Protected(Feature):
    """Has what is protected come back exactly and once.

    A model often writes a placeholder or an address as it is. Where it does not, its attention
    tells where it belongs, see
    :mod:`~seqserve_server.front.generate.protected_places`.
    """

    field = "options.keep"
    shapes_text = True

    def __init__(self, asked: Asked) -> None:
        self._texts = tuple(asked.options.keep)
        self._has_placeholders = asked.options.keep_placeholders
        self._returns_alignment = asked.options.return_alignment
        self._tokenizer = asked.model.tokenizer
        self._can_score = asked.model.manifest.can_score
        self._alignment = Alignment(asked)

    def read(self, part: Part) -> Part:
        spans = protected_spans(part.original, self._texts, self._has_placeholders)
        return part._replace(protected=spans) if spans else part

    def max_bytes(self, part: Part) -> int:
        # Each is in the text and by itself, with its places.
        return sum(
            2 * _CHARACTER_BYTES * (end - begin) + STRING_BYTES + 6 * ID_BYTES
            for begin, end in part.protected
        )

    def rewrites(self, part: Part) -> bool:
        return bool(part.protected)

    def needs_attention(self, part: Part, answer: Finished) -> bool:
        if not (part.protected and self._can_score):
            return False
        if any(hypothesis.attention for hypothesis in answer.hypotheses):
            return False
        # A request whose time ran out in the queue has written nothing.
        written = [each.token_ids for each in answer.hypotheses if each.token_ids]
        texts = map(self._tokenizer.decode, written)
        return any(is_missing(each, part.original, part.protected) for each in texts)

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        if not part.protected:
            return
        if not self._returns_alignment:
            self._alignment.write(part, hypothesis, message)
        restore(message, part.original, part.protected)
        if not self._returns_alignment:
            message.ClearField("alignment")


def protected_spans(text: str, texts: Sequence[str], has_placeholders: bool) -> list[Span]:
    """Finds the spans of a text that are protected, in order; none is in another.

    Of spans that overlap the first one counts, and the longest of those that begin with it.
    """
    overlapping = [span for each in texts for span in occurrences(each, text)]
    if has_placeholders and _SIGN.search(text):
        overlapping += [Span(*match.span()) for match in _placeholders().finditer(text)]
    spans: list[Span] = []
    for span in sorted(overlapping, key=lambda span: (span.begin, -span.end)):
        if not spans or span.begin >= spans[-1].end:
            spans.append(span)
    return spans


@cache
def _placeholders() -> re.Pattern[str]:
    return re.compile(f"{PLACEHOLDER}|{_NOT_PLACEHOLDERS}")
