"""XLIFF 1.2 and 2: what has a source and no target gets one; inline elements follow its words.

Sources: https://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html,
https://docs.oasis-open.org/xliff/xliff-core/v2.1/xliff-core-v2.1.html.
"""

import re
from collections.abc import Iterator

from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.messages import is_message, pieces, target
from seqserve.documents.passage import Lines, Passage, joined_passages
from seqserve.documents.pieces import Kind, Piece
from seqserve.documents.syntax import Syntax
from seqserve.documents.xml_source import ENTITY, TEXT, XML, Node, Role
from seqserve.documents.xml_text import Table

# A code and its end, which may be elements far from each other: by what they belong together.
_STARTS = {"bx": "rid", "bpt": "rid", "sc": "id", "sm": "id"}
_ENDS = {"ex": "rid", "ept": "rid", "ec": "startRef", "em": "startRef"}
_POSITIONS = {"open": Kind.START, "close": Kind.END}
# Names of codes that begin and end an element, as Angular writes them.
_NAMED = re.compile(r"(?P<start>START|OPEN|BEGIN)_|(?:CLOSE|END)_")
_STATE = re.compile(r"(\sstate\s*=\s*)(?:\"[^\"]*\"|'[^']*')")
# Texts of pages, where white space means a space, by their type or as Angular names their file.
_PAGES = {"html", "xhtml", "htmlbody", "ng.template", "ng2.template"}
_PAGE = XML._replace(keeps_space=False)
# Attributes with the language of the targets, next to that of the sources.
_TARGETS = {"srcLang": "trgLang", "source-language": "target-language"}
# States of a target without a translation, in version 1.2.
_UNTRANSLATED = {"new", "needs-translation"}


def _code(node: Node) -> Piece | None:
    attributes, name = node.attributes, node.name
    id_ = attributes.get("id", "")
    if halves := (_STARTS if name in _STARTS else _ENDS if name in _ENDS else None):
        kind = Kind.START if halves is _STARTS else Kind.END
        # A mark of an annotation replaces no word.
        return Piece(kind, node.raw, attributes.get(halves[name], id_), text="")
    if name == "it" and (position := _POSITIONS.get(attributes.get("pos", ""))):
        return Piece(position, node.raw, attributes.get("rid", id_), text="")
    if name not in ("x", "ph", "it", "cp"):
        return None
    if named := _NAMED.match(id_):
        kind = Kind.START if named["start"] else Kind.END
        return Piece(kind, node.raw, re.sub(r"_\d+$", "", id_[named.end() :]), text="")
    return Piece(Kind.PLACEHOLDER, node.raw, text="")


_TABLE = Table(
    root="xliff",
    roles=dict.fromkeys(("g", "pc", "mrk"), Role.INLINE)
    | dict.fromkeys((*_STARTS, *_ENDS, "x", "ph", "it", "cp"), Role.POINT),
    role=lambda node, _: None if _is_text(node, True) else Role.PROTECTED,
    piece=_code,
    texts=lambda raw, syntax, is_alone: pieces(raw, syntax, others=ENTITY, is_whole=False),
)


def parse(lines: Lines, languages: Languages = UNKNOWN) -> Iterator[Passage]:
    """Yields a passage for each source that has no target, or an empty one.

    A new target has the state ``needs-review-translation`` in version 1.2; in version 2 its segment
    has the state ``translated``. Elements with ``translate="no"`` stay. A document that does not
    name the language of its targets gets it.
    """
    return joined_passages(_parts(_TABLE.read("".join(lines)), True, XML, languages.code))


def _parts(parent: Node, is_text: bool, syntax: Syntax, code: str) -> Iterator[str | Passage]:
    for node in parent.children:
        is_inner = _is_text(node, is_text)
        told = {node.attributes.get(name) for name in ("datatype", "original")}
        own = _PAGE if told & _PAGES else syntax
        if node.name in ("trans-unit", "segment"):
            marked = Passage(line=1, source=node.raw, copied="marked")
            yield _unit(node, own) if is_inner else marked
        else:
            yield _with_language(node, code) if node.children else node.raw
            yield from _parts(node, is_inner, own, code)
            yield node.closing if node.children else ""


def _with_language(node: Node, code: str) -> str:
    told = node.attributes
    missing = [name for source, name in _TARGETS.items() if source in told and name not in told]
    return f'{node.opening[:-1]} {missing[0]}="{code}">' if code and missing else node.opening


def _is_text(node: Node, is_text: bool) -> bool:
    return {"yes": True, "no": False}.get(node.attributes.get("translate", ""), is_text)


def _unit(unit: Node, syntax: Syntax) -> str | Passage:
    children: dict[str, Node] = {}
    for child in unit.elements():
        children.setdefault(child.name, child)
    source, old = children.get("source"), children.get("target")
    is_done = old and (old.inner.strip() or old.attributes.get("state", "new") not in _UNTRANSLATED)
    if source is None or not source.inner or is_done:
        return Passage(line=1, source=unit.raw, copied="translated") if old else unit.raw
    if is_message(source.text):
        fault = "is a message of ICU, which is not translated in XLIFF"
        return Passage(line=1, source=unit.raw, fault=fault)
    name = f"{source.prefix}target"
    # The target follows the source, and in version 1.2 the source in segments.
    nodes, segmented = unit.children, children.get("seg-source", source)
    place = nodes.index(old) if old else nodes.index(segmented) + 1
    tag = old.opening.removesuffix(">").removesuffix("/").rstrip() if old else f"<{name}"
    before = nodes[nodes.index(source) - 1]
    has_indent = old is None and nodes[0] is not source and before.name == TEXT
    indent = before.raw if has_indent and not before.raw.strip() else ""
    head = "".join(each.raw for each in nodes[:place]) + indent
    if unit.name == "segment":
        opening = f"{_with_state(unit.opening, 'translated')}{head}{tag}>"
    else:
        opening = f"{unit.opening}{head}{_with_state(f'{tag}>', 'needs-review-translation')}"
    rest = "".join(each.raw for each in nodes[place + (old is not None) :])
    return target(
        # Its marks of segments are the target's, too.
        _TABLE.pieces(segmented if segmented.text == source.text else source, is_text=True),
        syntax,
        kept=unit.raw,
        opening=opening,
        closing=f"</{name}>{rest}{unit.closing}",
    )


def _with_state(tag: str, state: str) -> str:
    if _STATE.search(tag):
        return _STATE.sub(rf'\g<1>"{state}"', tag, count=1)
    return f'{tag[:-1]} state="{state}">'
