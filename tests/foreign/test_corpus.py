"""Documents of other projects: untranslated to the byte, and translated to the last word."""

import io
import re
import zipfile

import pytest

from seqserve.documents.formats import ARCHIVES, Format
from seqserve.documents.passage import ParseError

from .capitals import in_capitals, rewritten, same
from .corpus import SUFFIXES, documents, untranslated
from .readers import lower_words

pytestmark = pytest.mark.foreign
LEAST = 60
REFUSED = {"normalize.docx"}
"""Documents that are not in their format."""


@pytest.mark.parametrize("kind", SUFFIXES, ids=lambda kind: kind.value)
def test_a_document_comes_back_whole(kind: Format) -> None:
    found = documents(kind)
    assert len(found) >= LEAST, "run make build/foreign/.ready"
    for path in found:
        content = path.read_bytes()
        if path.name not in REFUSED:
            assert _parts(kind, rewritten(kind, content, same)) == _parts(kind, content), path


@pytest.mark.parametrize("kind", SUFFIXES, ids=lambda kind: kind.value)
def test_each_word_that_a_reader_sees_is_translated_or_in_the_report(kind: Format) -> None:
    missed = {}
    for path in documents(kind):
        try:
            run = in_capitals(kind, untranslated(kind, path.read_bytes()))
        except ParseError:
            assert path.name in REFUSED
            continue
        known = {word for text in run.kept for word in re.findall(r"[^\W\d_]{2,}", text)}
        if words := lower_words(kind, run.content) - known:
            missed[str(path)] = sorted(words)[:20]
    assert not missed


def _parts(kind: Format, content: bytes) -> dict[str, bytes]:
    if kind not in ARCHIVES:
        return {"": content}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
