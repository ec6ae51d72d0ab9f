"""XML as translators exchange it, as passages."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from seqserve.documents.passage import Passage
from seqserve.documents.xml_source import Node
from seqserve.documents.xml_text import Role, Table


def xml(
    text: str,
    ignored: Collection[str] = (),
    splitting: Collection[str] = (),
    non_splitting: Collection[str] = (),
    *,
    has_outline: bool = True,
) -> Iterator[Passage]:
    """Returns the passages of XML as translators exchange it: tags follow the words they enclose.

    Args:
        text: XML, or a part of it.
        ignored: Names of elements that stay as they are, with their content.
        splitting: Names of elements that divide the text.
        non_splitting: Names of elements that do not.
        has_outline: Whether elements beside which there is no text divide it, as paragraphs do.

    Raises:
        ParseError: It is not well-formed.
    """
    inline: set[int] = set()

    def role(node: Node, parent: Node) -> Role:
        if node.name in ignored:
            return Role.PROTECTED
        if node.name in splitting:
            return Role.STRUCTURE
        is_within = not has_outline or parent.is_mixed or id(parent) in inline
        if not is_within and node.name not in non_splitting:
            return Role.STRUCTURE
        inline.add(id(node))
        return Role.INLINE

    return Table(roles={}, namespaces=None, is_text=True, role=role).parse([text])
