"""Generates the typed keywords and the tables of the decoding options from their declarations.

    python proto/generate_options.py FOLDER

writes into FOLDER, which holds fresh stubs: ``clients/python/seqserve/v1/generation_options.py``
and ``docs/decoding.md``, whose tables stand between markers that name their groups::

    <!-- options: sampling -->
    <!-- end of options -->
"""

from __future__ import annotations

import re
import sys
import textwrap
from inspect import formatannotation
from pathlib import Path

OUT = Path(sys.argv[1])
ROOT = Path(__file__).parent.parent
# The module alone: the package needs the file that is generated here.
sys.path[:1] = [str(OUT / "clients/python"), str(ROOT / "clients/python/seqserve")]

from declarations import DECLARATIONS, Declaration  # noqa: E402

HEADER = '''\
"""Keywords of the decoding options, typed and described.

Generated from proto/seqserve/v1/generation.proto by `make proto`; do not edit.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class GenerationOptions(TypedDict, total=False):
    """The fields of the message ``GenerationOptions``; None leaves one to the server."""
'''
TABLE = re.compile(r"(<!-- options: (.+?) -->\n).*?(<!-- end of options -->)", re.DOTALL)


def keyword(option: Declaration) -> str:
    """Returns the declaration of a keyword and its docstring."""
    kind = formatannotation(option.kind).replace("list[", "Sequence[").replace("dict[", "Mapping[")
    if option.choices:
        kind = f"Literal{list(option.choices)}".replace("'", '"')
        kind += " | bool" if "true" in option.choices else ""
    lines = textwrap.wrap(f'"""{option.text}"""', 96, break_long_words=False)
    return "\n".join(["", f"    {option.name}: {kind} | None", *(f"    {line}" for line in lines)])


def row(option: Declaration) -> str:
    """Returns the row of an option in a table of the documentation."""
    meaning = re.sub(r"\b[a-z]+(_[a-z]+)+\b", r"`\g<0>`", option.help)
    return f"| `{option.name}` | {option.shown_default} | {option.bounds} | {meaning} |"


def table(found: re.Match[str]) -> str:
    """Returns the table of the groups that a marker names."""
    groups = found[2].split(", ")
    rows = [row(option) for option in DECLARATIONS.values() if option.group in groups]
    head = ["| option | default | bounds | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([found[1] + head[0], head[1], *rows, found[3]])


def write(path: str, text: str) -> None:
    """Writes a generated file."""
    (OUT / path).parent.mkdir(parents=True, exist_ok=True)
    (OUT / path).write_text(text, encoding="utf-8")


page = (ROOT / "docs/decoding.md").read_text(encoding="utf-8")
write("docs/decoding.md", TABLE.sub(table, page))
keywords = [keyword(option) for option in DECLARATIONS.values()]
write(
    "clients/python/seqserve/v1/generation_options.py", "\n".join([HEADER.rstrip(), *keywords, ""])
)
