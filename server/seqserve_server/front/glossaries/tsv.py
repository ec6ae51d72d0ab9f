"""Reads glossaries of tab-separated values: in each line a source, a tab, and its target."""

from __future__ import annotations

from seqserve_server.front.glossaries.glossary import GlossaryError, Term, fault_of


def entries_of(content: bytes) -> list[Term]:
    """Reads the entries; blank lines, and those that begin with ``#``, are left out.

    Raises:
        GlossaryError: A line is no entry, or a source has two targets.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise GlossaryError(f"line {number}: is not UTF-8") from None
    targets: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 2:
            raise GlossaryError(
                f"line {number}: has {len(columns)} columns, not two, a source and a target with a"
                " tab between them"
            )
        source, target = columns
        if fault := fault_of(Term(source=source, target=target)):
            raise GlossaryError(f"line {number}: its {fault}")
        if targets.setdefault(source, target) != target:
            raise GlossaryError(f"line {number}: {source!r:.80} has another target before")
    return [Term(source=source, target=target) for source, target in targets.items()]
