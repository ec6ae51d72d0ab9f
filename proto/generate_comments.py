"""Generates the descriptions in the gateway's OpenAPI from the comments of the protos.

    python proto/generate_comments.py DESCRIPTORS FOLDER

reads a set of descriptors with source information and writes into FOLDER the file
``gateway/seqserve_gateway/resources/comments.json``: comments by the names of messages, fields,
enums, values, services and methods. The stubs have all else, but no comments.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

PATH = "gateway/seqserve_gateway/resources/comments.json"
# Numbers of the lists in FileDescriptorProto, and of the lists in their members.
LISTS = {4: "message_type", 5: "enum_type", 6: "service"}
INNER_LISTS = {4: {2: "field"}, 5: {2: "value"}, 6: {2: "method"}}


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


descriptors = FileDescriptorSet.FromString(Path(sys.argv[1]).read_bytes())
comments = {
    name: comment
    for file in descriptors.file
    if file.package == "seqserve.v1" and not file.name.endswith("options.proto")
    for name, comment in comments_of(file)
}
target = Path(sys.argv[2]) / PATH
target.parent.mkdir(parents=True, exist_ok=True)
text = json.dumps(dict(sorted(comments.items())), indent=1, ensure_ascii=False)
target.write_text(text + "\n", encoding="utf-8")
