"""Files that clients send, translated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqserve.documents.attributes import Languages
from seqserve_gateway.call import Call
from seqserve_gateway.failure import refusal
from seqserve_gateway.fields import File
from seqserve_gateway.reading import Job
from seqserve_gateway.translation import Reading, answers_of

SUFFIXES = (
    *(".txt", ".md", ".html", ".srt", ".vtt"),
    *(".json", ".arb", ".po", ".pot", ".strings", ".xml", ".xliff", ".xlf"),
    *(".docx", ".odt", ".epub"),
)
"""Of the files that are translated; JSON lines and CSV need a name of what to translate."""


async def translated_file(
    call: Call, file: File, source: str, target: str, field: str
) -> tuple[File, dict[str, Any]]:
    """Translates the text of a file; the rest of it stays. Tells what became of its texts, too."""
    path = Path(file.name)
    if path.suffix.lower() not in SUFFIXES:
        reason = f"the format of {file.name} is not supported; there are {', '.join(SUFFIXES)}"
        raise refusal(field, reason)
    languages = Languages(source, target)
    reading = Reading(call, Job(file.name, content=file.content, languages=languages), field)
    _, answers = await answers_of(call, reading, source, target)
    content, facts = await reading("write_file", answers)
    return File(f"{path.stem}_{target}{path.suffix}", content), facts
