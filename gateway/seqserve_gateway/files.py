"""Files that clients send, translated: texts of one document, and archives of several parts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from seqserve.documents.archive import opened, rewrite, text_of, texts_of
from seqserve.documents.encoding import decoded
from seqserve.documents.formats import ARCHIVES, Format, format_of, parser_of
from seqserve.documents.passage import ParseError, Parser
from seqserve.errors import OptionError
from seqserve_gateway.call import Call
from seqserve_gateway.failure import refusal
from seqserve_gateway.fields import File
from seqserve_gateway.translation import translated

SUFFIXES = (
    *(".txt", ".md", ".html", ".srt", ".vtt"),
    *(".json", ".po", ".pot", ".strings", ".xml", ".xliff", ".xlf"),
    *(".docx", ".odt", ".epub"),
)
"""Of the files that are translated; JSON lines and CSV need a name of what to translate."""
_MAX_UNPACKED = 64 << 20
# Reading it takes up to 200 times as much memory.
_MAX_TEXT = 4 << 20


async def translated_file(call: Call, file: File, source: str, target: str, field: str) -> File:
    """Translates the text of a file; the rest of it stays."""
    path = Path(file.name)
    if path.suffix.lower() not in SUFFIXES:
        reason = f"the format of {file.name} is not supported; there are {', '.join(SUFFIXES)}"
        raise refusal(field, reason)
    kind = format_of(path)
    parser = parser_of(kind, field=None, column=None, joins_lines=False)
    name = f"{path.stem}_{target}{path.suffix}"
    try:
        if kind in ARCHIVES:
            parts = await call.in_thread(lambda: _parts(file, kind))
            written = await _translated(call, parts, parser, source, target)
            return File(name, await call.in_thread(lambda: _packed(file, kind, written)))
        text, mark, encoding = decoded(file.content)
        [written_text] = (await _translated(call, {"": text}, parser, source, target)).values()
        return File(name, (mark + written_text).encode(encoding))
    except (ParseError, OptionError) as error:
        raise refusal(field, str(error)) from None


async def _translated(
    call: Call, texts: Mapping[str, str], parser: Parser, source: str, target: str
) -> dict[str, str]:
    results = await translated(
        call, [*texts.values()], lambda text: parser(io.StringIO(text, "")), source, target
    )
    return {name: result.text for name, result in zip(texts, results, strict=True)}


def _parts(file: File, kind: Format) -> dict[str, str]:
    with opened(io.BytesIO(file.content), file.name, _MAX_UNPACKED) as archive:
        parts = texts_of(kind, archive)
        if (size := sum(part.file_size for part in parts)) > _MAX_TEXT:
            raise OptionError(f"{file.name}: has text of {size:,} bytes; {_MAX_TEXT:,} can be read")
        return {part.filename: text_of(archive, part) for part in parts}


def _packed(file: File, kind: Format, written: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with (
        opened(io.BytesIO(file.content), file.name, _MAX_UNPACKED) as source,
        zipfile.ZipFile(packed, "w") as archive,
    ):
        rewrite(source, archive, kind, lambda part: written[part.filename])
    return packed.getvalue()
