"""Generates what the protos tell besides the stubs: keywords, tables and descriptions.

    python proto/generate.py DESCRIPTORS FOLDER

reads a set of descriptors with source information and writes into FOLDER, which holds fresh stubs:

- ``clients/python/seqserve/v1/generation_options.py``: the typed keywords of decoding options;
- ``docs/decoding.md``, whose tables stand between markers that name their groups::

    <!-- options: sampling -->
    <!-- end of options -->

- ``gateway/seqserve_gateway/resources/comments.json``, the descriptions in the gateway's OpenAPI:
  comments by the names of messages, fields, enums, values, services and methods.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from inspect import formatannotation
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

DESCRIPTORS, OUT = map(Path, sys.argv[1:])
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
# Numbers of the lists in FileDescriptorProto, and of the lists in their members.
LISTS = {4: "message_type", 5: "enum_type", 6: "service"}
INNER_LISTS = {4: {2: "field"}, 5: {2: "value"}, 6: {2: "method"}}


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


def name_of(file: FileDescriptorProto, path: list[int]) -> str:
    """Returns the full name of what a path leads to; empty if it is nothing that has a name."""
    if len(path) not in (2, 4) or path[0] not in LISTS:
        return ""
    outer = getattr(file, LISTS[path[0]])[path[1]]
    names = [file.package, outer.name]
    if len(path) == 4:
        inner = INNER_LISTS[path[0]].get(path[2])
        if inner is None:
            return ""
        member: Any = getattr(outer, inner)[path[3]]
        names.append(member.name)
    return ".".join(names)


def comments_of(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """Yields the name and the comment of everything that has both."""
    for location in file.source_code_info.location:
        name = name_of(file, list(location.path))
        comment = " ".join(location.leading_comments.split())
        if name and comment:
            yield name, comment.partition(" buf:lint:ignore")[0]


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
descriptors = FileDescriptorSet.FromString(DESCRIPTORS.read_bytes())
comments = {
    name: comment
    for file in descriptors.file
    if file.package == "seqserve.v1" and not file.name.endswith("options.proto")
    for name, comment in comments_of(file)
}
write(
    "gateway/seqserve_gateway/resources/comments.json",
    json.dumps(dict(sorted(comments.items())), indent=1, ensure_ascii=False) + "\n",
)
