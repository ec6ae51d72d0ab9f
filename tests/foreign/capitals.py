"""Documents as a model returns them that answers each passage by its capitals."""

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.capitals import capitals

from seqserve.documents.archive import opened, parser_within, rewrite, text_of
from seqserve.documents.formats import ARCHIVES, Format, parser_of
from seqserve.documents.passage import Passage

Answer = Callable[[Passage], str]


@dataclass
class Run:
    """A document that is translated, and what was not."""

    content: bytes = b""
    kept: list[str] = field(default_factory=list)
    """What passages copied on purpose, or left, and placeholders."""


def same(passage: Passage) -> str:
    """The passage as it is."""
    return passage.before + passage.source


def rewritten(kind: Format, content: bytes, answer: Answer) -> bytes:
    """A document with an answer in place of each passage."""
    parser = parser_of(kind, field="text", column="text")

    def written(text: str) -> str:
        return "".join(map(answer, parser(io.StringIO(text, newline=""))))

    if kind not in ARCHIVES:
        return written(content.decode()).encode()
    new = io.BytesIO()
    with opened(io.BytesIO(content), "") as source, zipfile.ZipFile(new, "w") as target:
        parser = parser_within(source, kind, parser)
        rewrite(source, target, kind, lambda part: written(text_of(source, part)))
    return new.getvalue()


def in_capitals(kind: Format, content: bytes) -> Run:
    """A document with each passage in capitals, aligned word by word."""
    run = Run()

    def answer(passage: Passage) -> str:
        if passage.copied or passage.fault:
            run.kept.append(passage.source)
        if not passage.has_words or passage.fault:
            return same(passage)
        run.kept.extend(passage.kept)
        return passage.before + passage.written(capitals(passage))

    run.content = rewritten(kind, content, answer)
    return run
