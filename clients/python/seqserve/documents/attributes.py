"""Tags whose attributes a reader reads or hears, such as ``alt``, or that name a language."""

from __future__ import annotations

import html
import locale
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from seqserve.documents.pieces import Kind, Piece
from seqserve.documents.syntax import TEMPLATES, Syntax, enclosed
from seqserve.language_codes import AUTO, folded
from seqserve.words import has_words

# Sources: https://html.spec.whatwg.org/multipage/dom.html#the-translate-attribute, and
# https://www.w3.org/TR/wai-aria-1.2/#translatable-attributes; ``label`` is of components, too.
_TEXTS = {"alt", "label", "placeholder", "title"}
_TEXTS |= {"aria-description", "aria-label", "aria-placeholder", "aria-roledescription"}
_TEXTS |= {"aria-valuetext"}
_BUTTONS = {"button", "reset", "submit"}
_LANGUAGES = {"lang", "xml:lang"}
# Attributes with a page's title in links.
_META = {"description", "og:description", "og:image:alt", "og:title"}
_META |= {"twitter:description", "twitter:image:alt", "twitter:title"}
_NAMES = "|".join({*_TEXTS, *_LANGUAGES, "content", "value"})
_LIKELY = re.compile(rf"(?i)[\s\"'/](?:{_NAMES})\s*=")
_TAG = re.compile(r"<(?:[^\s/<>:]*:)?(?P<name>[^\s/<>]+)")
_ATTRIBUTE = re.compile(
    r"[\s/]*+(?P<name>[^\s/>][^\s/>=]*+)"
    r"(?:\s*+=\s*+(?:\"(?P<double>[^\"]*+)\"|'(?P<single>[^']*+)'|(?P<bare>[^\s>\"']++)))?"
)
_WRITTEN = {"double": ('"', "&quot;"), "single": ("'", "&#39;")}


_PROGRAMS = (r"\{#", "#", r"\}"), ("<%", "%", ">"), (r"<\?(?:php\b|=)", "?", ">")
TEMPLATE = re.compile(f"({'|'.join(enclosed(*each, '') for each in (*TEMPLATES, *_PROGRAMS))})")
"""What a program replaces in a page, as a group: also its comments, PHP, and several lines."""


def without_templates(source: str) -> str:
    """Returns a source with digits in place of templates, in which quotes and tags mean nothing."""
    return TEMPLATE.sub(lambda match: re.sub(r"[^\r\n]", "0", match[0]), source)


class Languages(NamedTuple):
    """The codes of the languages of a document and its translation; empty if they are not known."""

    source: str = ""
    target: str = ""

    def or_of(self, page: str) -> Languages:
        """Returns them with the language that a page names, if the source is not known."""
        return self if self.source and self.source != AUTO else Languages(page, self.target)

    def is_other(self, code: str) -> bool:
        """Returns whether a code is another language than the source."""
        return bool(code and self.source) and not folded(code).may_be(folded(self.source))

    def renamed(self, code: str) -> str:
        """Returns the language code of a translation for a code of the source."""
        is_source = code and self.source and not self.is_other(code)
        return (is_source and self.code) or code

    def told(self, code: str) -> str:
        """Returns ``renamed``, for a code that tells the source if that is not known."""
        return self.or_of(code).renamed(code)

    def regional(self, code: str) -> str:
        """Returns ``told`` with a region, as styles of documents name a language."""
        new = self.told(code)
        usual = locale.normalize(new).partition(".")[0].replace("_", "-")
        return new if new == code or "-" in new else usual

    def locale(self, code: str) -> str:
        """Returns ``told`` as files of programs write it; one that is missing is added."""
        return (self.told(code) if code else self.code).replace("-", "_")

    @property
    def code(self) -> str:
        """The language code of a translation; empty if it is not known."""
        _, *subtags = re.split("[-_]", self.target)
        forms = (each.upper() if len(each) == 2 else each.title() for each in subtags)
        return "-".join([folded(self.target).name, *(each for each in forms if each != "Latn")])


UNKNOWN = Languages()


def read_tag(
    tag: str, syntax: Syntax, languages: Languages, *, is_text: bool = True
) -> tuple[str, tuple[Piece, ...]]:
    """Reads a tag that begins an element.

    Args:
        syntax: How the document writes texts between tags.
        is_text: Whether what is in the element is translated, so that its language changes.

    Returns:
        The tag in the language of the translation, and its texts with what is around them; nothing
        if it has none.
    """
    pieces: list[Piece] = []
    kept, end = "", 0
    plain = without_templates(tag)
    for name, group, begin, last in _values(plain) if _LIKELY.search(plain) else ():
        value = tag[begin:last]
        if name in _LANGUAGES:
            code = languages.renamed(value) if is_text else value
            kept, end = f"{kept}{tag[end:begin]}{code}", last
        elif has_words(plain[begin:last]):
            text = Piece(Kind.TEXT, value, syntax=_quoted(syntax, group))
            pieces += [Piece(Kind.BREAK, kept + tag[end:begin]), text]
            kept, end = "", last
    last_piece = Piece(Kind.BREAK, kept + tag[end:])
    raw = "".join(piece.raw for piece in (*pieces, last_piece))
    return raw, (*pieces, last_piece) if pieces else ()


def _values(tag: str) -> Iterator[tuple[str, str, int, int]]:
    element = _TAG.match(tag)
    at = element.end() if element else len(tag)
    found: dict[str, re.Match[str]] = {}
    while attribute := _ATTRIBUTE.match(tag, at):
        # If names are equal, the first one counts.
        found.setdefault(attribute["name"].lower(), attribute)
        at = attribute.end()
    values = {name: html.unescape(each[each.lastgroup or ""]) for name, each in found.items()}
    texts = _TEXTS | _LANGUAGES
    kind = element["name"].lower() if element else ""
    if kind == "input" and values.get("type", "").lower() in _BUTTONS:
        texts |= {"value"}
    if kind == "meta" and {values.get("name", "").lower(), values.get("property", "")} & _META:
        texts |= {"content"}
    for name, each in found.items():
        group = each.lastgroup or ""
        if name in texts and group != "name":
            yield name, group, each.start(group), each.end(group)


@cache
def _quoted(syntax: Syntax, group: str) -> Syntax:
    """Returns how a value is written between quotes; one without gets them."""
    quote, reference = _WRITTEN.get(group, _WRITTEN["double"])
    around = "" if group in _WRITTEN else quote

    def write(text: str) -> str:
        return f"{around}{syntax.write(text).replace(quote, reference)}{around}"

    return syntax._replace(write=write)
