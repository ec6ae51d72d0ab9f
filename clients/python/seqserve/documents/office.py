"""Parts of .docx and .odt files, of which paragraphs are passages.

Sources: ECMA-376, part 1, section 17.3; OASIS OpenDocument 1.3, part 3, sections 5 and 6.
"""

from seqserve.documents.pieces import FIELD, Kind, Piece
from seqserve.documents.xml_source import XML, Node
from seqserve.documents.xml_text import Role, Table

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_STRICT_WORD = "http://purl.oclc.org/ooxml/wordprocessingml/main"
_OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns:"


def _field(node: Node) -> Piece | None:
    """Reads what begins or ends a field whose text is in runs."""
    kinds = {"begin": Kind.OPENING, "end": Kind.CLOSING}
    if node.name != "w:fldChar" or node.attributes.get("fldCharType") not in kinds:
        return None
    return Piece(kinds[node.attributes["fldCharType"]], node.raw, FIELD)


DOCX = Table(
    namespaces={_WORD: "w", _STRICT_WORD: "w"},
    roles={
        "w:p": Role.BLOCK,
        "w:r": Role.RUN,
        "w:rPr": Role.FORMAT,
        "w:t": Role.RUN_TEXT,
        **dict.fromkeys(("w:tab", "w:ptab", "w:br", "w:cr"), Role.KEPT),
        **dict.fromkeys(("w:del", "w:moveFrom", "w:pPr", "w:rt"), Role.POINT),
        **dict.fromkeys(("w:proofErr", "w:softHyphen", "w:lastRenderedPageBreak"), Role.NOTHING),
        # Of the format of a run: the language and the checks of the source.
        **dict.fromkeys(("w:lang", "w:noProof"), Role.NOTHING),
        **dict.fromkeys(("w:ins", "w:moveTo", "w:hyperlink", "w:smartTag"), Role.INLINE),
        **dict.fromkeys(("w:sdt", "w:sdtContent", "w:customXml", "w:dir", "w:bdo"), Role.INLINE),
        **dict.fromkeys(("w:ruby", "w:rubyBase"), Role.INLINE),
    },
    characters={"w:noBreakHyphen": "\N{NON-BREAKING HYPHEN}"},
    piece=_field,
)
"""Runs whose format is not that of the first one follow their words, as links, fields and inserted
text do; tabs, breaks and frames divide a paragraph."""
ODT = Table(
    namespaces={
        f"{_OPEN_DOCUMENT}text:1.0": "text",
        f"{_OPEN_DOCUMENT}office:1.0": "office",
        f"{_OPEN_DOCUMENT}svg-compatible:1.0": "svg",
    },
    roles={
        **dict.fromkeys(("text:p", "text:h"), Role.BLOCK),
        **dict.fromkeys(("text:tab", "text:line-break"), Role.KEPT),
        "text:tracked-changes": Role.DELETED,
        **dict.fromkeys(("office:annotation", "text:ruby-text", "text:number"), Role.POINT),
        **dict.fromkeys(("svg:title", "svg:desc"), Role.POINT),
        **dict.fromkeys(("text:span", "text:a", "text:meta", "text:ruby"), Role.INLINE),
        **dict.fromkeys(("text:ruby-base",), Role.INLINE),
        "text:s": Role.SPACE,
    },
    syntax=XML._replace(keeps_space=False),
)
"""Tabs, notes, frames and breaks divide a paragraph."""
