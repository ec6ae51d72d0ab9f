"""Finds what a translation of a text must have as it is: placeholders, addresses, named texts."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

from seqserve.words import PLACEHOLDER, has_words
from seqserve_server.text.splitting import Span

_WITHIN = re.compile(r"\w\w")
_TLDS = "com|org|net|info|edu|gov|io|dev|app|ai|eu|de|at|ch|uk|fr|es|it|nl|pl|pt|br|cz|ru|jp|kr|cn"
_EXTENSIONS = (
    "txt|md|pdf|docx?|xlsx?|pptx?|odt|ods|epub|csv|tsv|json|xml|ya?ml|toml|ini|cfg|conf|log|sql|db|html?"
    "|css|jsx?|tsx?|py|rs|go|java|cpp|sh|bat|exe|dll|so|zip|gz|tgz|bz2|7z|rar|iso|dmg|deb|rpm|png|jpe?g"
    "|gif|svg|webp|mp3|mp4|wav|flac|mkv|avi|mov|po|bin|onnx"
)
# Emoji of Unicode 16 and the characters that join and change them, UTS 51, ED-17a; and other signs
# that few models have learnt.
_EMOJI = (
    "[©®™†‡√÷¼¾⅓⅔\U0001f000-\U0001faff\u203c\u2049\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299]"
)
_EMOJI_PART = "[\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
_NUMBERS = r"(?:[1-9]\d?\d?(?:\.\d{3}){2}(?:[.\d]*\.000)?|(?:\d\d?\.){2}(?:19|20)\d\d)(?!\.?\w)"
_NOT_PLACEHOLDERS = "|".join(
    [
        r"<<[\w.:#/-]{1,100}>>|</?[A-Za-z][\w:.-]*(?:\s[^<>]{0,500})?/?>",
        r"`[^`\n]{1,200}`|\]\([^()\s]+\)",
        r"\[\[\w+\]\]|\[[A-Z][A-Z_]+\]|\b__\w+__\b",
        # An address without its scheme, and a file.
        rf"(?<![\w.@/-])(?:[a-z0-9-]+\.)+(?:{_TLDS})(?![\w-]|\.\w)(?:[/?#][^\s<>()\[\]]*[\w/=])?",
        r"(?<![\w/.~])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}/?|(?<!\w)(?:~|\.{1,2})/[\w.@+/-]*\w",
        r"(?<!\w)[A-Za-z]:\\[\w.\\-]*\w",
        rf"(?<![\w.-])[\w-]+(?:\.[\w-]+)*\.(?:{_EXTENSIONS})(?![\w-]|\.\w)",
        # Versions: 1.2.3, v2.0, 0.85.x, 3.1.0-rc1; not 1.250.000, 3.5.2024, or 2.5.
        rf"(?<![\w.])(?!{_NUMBERS})(?:[vV]\d+(?:\.\d+)*|\d+(?:\.\d+){{2,}}|\d+(?:\.\d+)*\.x)(?:[-+][A-Za-z][\w.]*\w|[-+]\d+)?(?![\w])",
        # A time as programs write it, a UUID, units.
        r"(?<!\w)\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?(?!\w)",
        r"(?<!\w)[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}(?!\w)",
        r"(?<![^\W\d])(?:[A-Za-z]{1,4}³|[µμ][A-Za-z]{1,4})(?!\w)",
        # A language as programs name it: en-US, but not ex-US.
        r"(?<![\w-])(?!co|ex|re|un)[a-z]{2}-[A-Z]{2}(?![\w-])",
        # Codes: KX7-4492, MP3, COVID-19.
        r"(?<![\w-])[A-Z]+(?:\d|-\d)[A-Z\d]*(?:-[A-Z\d]+)*(?![\w-])",
        r"(?<!\w)\$[A-Za-z_]\w*|(?<![\w-])--[a-z][\w-]*\w",
        r"(?<!\w)[A-Za-z]\w*(?:_\w+)+(?:\(\))?|(?<![\w.])[A-Za-z_][\w.]*\(\)",
        r"(?<![\w&#])#[^\W\d_]\w*|(?<![\w@.])@[A-Za-z_][\w]*",
        rf"(?:{_EMOJI}{_EMOJI_PART}*(?:\u200d{_EMOJI}{_EMOJI_PART}*)*|[0-9#*]\ufe0f?\u20e3)",
    ]
)


# What every placeholder has; most sentences have none of it.
_SIGN = re.compile(
    rf"[{{}}%$<@#`/\\_\[&\u20e3µμ³]|[^\s.]\.[^\s.]|--|[A-Zv]-?\d|-\d\dT|[a-z]-[A-Z]|\w-\w{{4}}-|\(\)|\]\(|{_EMOJI}"
)

# Some scripts put no space between a word of Latin letters and others: example.com에서.
_UNSPACED = "[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]"
_PARTICLE = re.compile(
    rf"(?<=[A-Za-z0-9_]){_UNSPACED}(?!\w{{0,40}}\.[A-Za-z])|{_UNSPACED}(?=[A-Za-z]|__)"
)
_BORDER = re.compile(rf"[A-Za-z0-9_]{_UNSPACED}|{_UNSPACED}[A-Za-z]")
# Folders, files and topics may be named so: /사용자a/b, 2024_보고서.pdf, #K팝.
_PARTICLES = re.compile(rf"(?:[/\\]|(?<!_)_){_UNSPACED}\w*|#\w+|({_PARTICLE.pattern})")


def protected_spans(
    text: str, texts: Sequence[str], has_placeholders: bool, others: Sequence[Span] = ()
) -> list[Span]:
    """Finds the spans of a text that are protected, in order; the first and longest counts.

    These are occurrences of ``texts``, placeholders if there may be any, and ``others``.
    """
    overlapping = [*others, *(span for each in texts for span in occurrences(each, text))]
    if has_placeholders and _SIGN.search(text):
        read = text if text.isascii() else _PARTICLES.sub(lambda m: " " if m[1] else m[0], text)
        overlapping += [Span(*match.span()) for match in _placeholders().finditer(read)]
    spans: list[Span] = []
    for span in sorted(overlapping, key=lambda span: (span.begin, -span.end)):
        if not spans or span.begin >= spans[-1].end:
            spans.append(span)
    return spans


@cache
def _placeholders() -> re.Pattern[str]:
    return re.compile(f"{PLACEHOLDER}|{_NOT_PLACEHOLDERS}")


def without(text: str, spans: Sequence[Span]) -> str:
    """Returns what of a text is in no span, with spaces in their place."""
    begins = [0, *(span.end for span in spans)]
    ends = [*(span.begin for span in spans), len(text)]
    return " ".join(text[begin:end] for begin, end in zip(begins, ends, strict=True))


CLOSING = re.compile(r"</([\w:.-]+)>")
"""A tag that ends an element, with its name."""
TAG = re.compile(r"</?([\w:.-]+)(?:\s[^<>]*)?(?<!/)>")
"""A tag that encloses text, with its name."""
_BETWEEN = re.compile(r"</[^<>]*><[^/]")
UNREAD = "\N{SOFT HYPHEN}"
"""Fills what no model reads: it is left out of what is tokenized."""


def without_tags(text: str, read: str, spans: Sequence[Span]) -> str:
    """Replaces what a model reads of a text for its protected tags that enclose words.

    A model reads a word next to a sign otherwise than after a space. Tags next to white space, or
    between two elements, become spaces, any others soft hyphens, which no model reads.
    """
    closed = {*CLOSING.findall(text)} - {"code", "kbd"}
    runs: list[Span] = []
    for begin, end in spans:
        if (tag := TAG.fullmatch(text, begin, end)) and tag[1] in closed:
            if runs and runs[-1].end == begin:
                begin = runs.pop().begin
            runs.append(Span(begin, end))
    characters = list(read)
    for begin, end in runs:
        around = text[begin - 1 : begin].strip() and text[end : end + 1].strip()
        is_within = around and not _BETWEEN.search(text, begin, end)
        characters[begin:end] = (UNREAD if is_within else " ") * (end - begin)
    return "".join(characters)


def is_missing(text: str, source: str, spans: Sequence[Span], read: str) -> bool:
    """Tells whether a text lacks a kept text of its source, as it was read, or has it too often."""
    if not has_words(without(source, spans)):
        return False
    wanted = Counter(text_read(source, read, span) for span in spans)
    counts = (sum(1 for _ in occurrences(kept, text)) - wanted[kept] for kept in wanted if kept)
    return "" in wanted or any(counts)


def text_read(source: str, read: str, span: Span) -> str:
    """Returns what a model has read for a span: its text, a name and spaces, or nothing."""
    own = read[slice(*span)]
    return own if own == source[slice(*span)] else own.strip(f" {UNREAD}")


def occurrences(kept: str, text: str) -> Iterator[Span]:
    """Yields where a text has a kept text, by itself where that begins or ends with a letter."""
    end = 0
    while (begin := text.find(kept, end)) >= 0:
        end = begin + len(kept)
        if not (_is_in_word(text, begin) or _is_in_word(text, end)):
            yield Span(begin, end)


def _is_in_word(text: str, place: int) -> bool:
    around = text[max(0, place - 1) : place + 1]
    return bool(_WITHIN.fullmatch(around)) and not _BORDER.fullmatch(around)
