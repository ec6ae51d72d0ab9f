"""What a reader sees of a document, by other programs' parsers."""

import io
import re
import zipfile
from collections.abc import Callable, Iterator

import lxml.etree as xml
import lxml.html
from markdown_it import MarkdownIt

from seqserve.documents.formats import Format

_WORD = re.compile(r"[^\W\d_]{2,}")
_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# What no reader sees, or nobody translates.
# Addresses, placeholders and tags within texts.
_PLACEHOLDER = re.compile(r"https?://\S+|<[^<>]*>|%\([^)]*\)[a-z]|%\w+%|%[-.\d]*[a-z]|\{[^{}]*\}")
_OF_SITES = re.compile(
    r"!\[[^\]\n]*\](?:\[[^\]\n]*\]|\([^)\n]*\))?|\{[:#.][^}\n]*\}|\{\w+=[^}\n]*\}"
    r"|(?<![\w:]):[a-z][\w+-]*:|/{3,}[ \t]*[\w-]+|:{3,}.*|\[![\w-]+\]|(?m:^\*\[\w+\]:)|--8<--.*"
    r"|(?<=\])\[[^\]\n]*\]"
)
_HTML = {"script", "style", "code", "pre", "template", "textarea", "svg", "math", "kbd", "samp"}
_HTML |= {"var", "noscript", "iframe"}
_ATTRIBUTES = ("alt", "aria-label", "placeholder", "title")
_WORD_TEXTS = (
    "//*[local-name()='t'][not(ancestor::*[local-name()='del' or local-name()='moveFrom'])]"
)
_SLIDE_TEXTS = "//*[local-name()='t'][not(ancestor::*[local-name()='fld'])]"
_SLIDE_TEXTS += "|//*[local-name()='v'][ancestor::*[local-name()='strCache']]"
_ODT_TEXTS = "//*[local-name()='body']//*[local-name()='p' or local-name()='h']"
_ODT_TEXTS += "[not(ancestor::*[local-name()='tracked-changes'])]"
_ODT_UNSEEN = {"tracked-changes", "annotation", "annotation-end", "script", "sequence-decls"}


def lower_words(kind: Format, content: bytes) -> set[str]:
    """The words that a reader sees, and that are not in capitals."""
    texts = (_PLACEHOLDER.sub(" ", text) for text in _READERS[kind](content))
    words = (word for text in texts for word in _WORD.findall(text))
    return {word for word in words if word != word.upper()}


def _html(content: bytes) -> Iterator[str]:
    root = lxml.html.document_fromstring(content, parser=lxml.html.HTMLParser(encoding="utf-8"))
    yield from _texts(root, lambda element: element.tag in _HTML or _is_marked(element))


def _is_marked(element: xml._Element) -> bool:
    return element.get("translate") == "no" or "notranslate" in (element.get("class") or "").split()


def _texts(root: xml._Element, is_unseen: Callable[[xml._Element], bool]) -> Iterator[str]:
    if isinstance(root.tag, str) and not is_unseen(root):
        yield from (root.get(name, "") for name in _ATTRIBUTES)
        yield root.text or ""
        for child in root:
            yield from _texts(child, is_unseen)
            yield child.tail or ""


def _markdown(content: bytes) -> Iterator[str]:
    # Of front matter the values are read, not their names.
    matter = r"\A---\n(?:[^\n]+\n)+?---\n"
    text = re.sub(matter, lambda found: re.sub(r"(?m)^\w+:", "", found[0]), content.decode())
    text = _OF_SITES.sub("", text)
    page = re.sub(r' (?:alt|title)="[^"]*"', "", _MARKDOWN.render(text))
    yield from _html(page.encode() or b"<p>")


def _parts(content: bytes, pattern: str) -> Iterator[xml._Element]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            if re.fullmatch(pattern, name):
                yield xml.fromstring(archive.read(name), xml.XMLParser(resolve_entities=False))


def _docx(content: bytes) -> Iterator[str]:
    for root in _parts(content, r"word/(document|header|footer|footnotes|endnotes)\d*\.xml"):
        for text in root.xpath(_WORD_TEXTS):
            yield text.text or ""


def _pptx(content: bytes) -> Iterator[str]:
    for root in _parts(content, r"ppt/(slides|notesSlides|charts|diagrams)/[a-zA-Z]*\d*\.xml"):
        for text in root.xpath(_SLIDE_TEXTS):
            yield text.text or ""


def _odt(content: bytes) -> Iterator[str]:
    for root in _parts(content, r"content\.xml"):
        for paragraph in root.xpath(_ODT_TEXTS):
            yield from _texts(
                paragraph, lambda element: xml.QName(element).localname in _ODT_UNSEEN
            )


def _epub(content: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"(?i).*\.(xhtml|html|htm)", name):
                yield from _html(archive.read(name))


def _xliff(content: bytes) -> Iterator[str]:
    for target in xml.fromstring(content).xpath("//*[local-name()='target']"):
        yield from target.itertext()


def _po(content: bytes) -> Iterator[str]:
    _, *entries = re.split(r"\n\s*\n", content.decode())
    for entry in entries:
        for text in re.findall(r'^msgstr.*(?:\n".*)*', entry, re.MULTILINE):
            yield re.sub(r"\\.|msgstr", " ", re.sub(r'"\s*\n\s*"', "", text))


_READERS: dict[Format, Callable[[bytes], Iterator[str]]] = {
    Format.HTML: _html,
    Format.MARKDOWN: _markdown,
    Format.DOCX: _docx,
    Format.PPTX: _pptx,
    Format.ODT: _odt,
    Format.EPUB: _epub,
    Format.XLIFF: _xliff,
    Format.PO: _po,
}
