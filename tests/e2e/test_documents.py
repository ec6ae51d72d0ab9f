"""Whole texts: a server that divides them, and `seqserve translate`, with the shipped model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.process import PATIENCE_S, ServerProcess

from seqserve import Client

from .long_text import long_text

PARAGRAPHS = ["I am learning German. Tom is reading a book.", "We watched a film at 3.30."]
TEXT = f"{PARAGRAPHS[0]}\r\n\r\n\r\n  {PARAGRAPHS[1]}\r\n"
SENTENCES = ["I am learning German.", "Tom is reading a book.", PARAGRAPHS[1]]


def test_a_text_goes_in_and_its_translation_comes_out(translator: Client) -> None:
    result = translator.generate(TEXT)
    alone = [translator.generate(sentence, segmentation="none") for sentence in SENTENCES]
    hypotheses = [each.hypotheses for each in alone]
    assert [segment.hypotheses for segment in result.segments] == hypotheses
    first, second, third = (each.text for each in alone)
    assert result.text == f"{first} {second}\r\n\r\n\r\n  {third}\r\n"


def test_tags_follow_their_words(shipped: ServerProcess, tmp_path: Path) -> None:
    source, out = tmp_path / "a.html", tmp_path / "b.html"
    source.write_text(
        '<p>She bought a <b>red car</b> last week. <a href="x">Do you want</a> to '
        "<i>dance</i> with me?<script>A <b>red</b> car.</script></p>\n"
    )
    command = [sys.executable, "-m", "seqserve", "translate", str(source), "-o", str(out)]
    done = subprocess.run(
        [*command, "--target", shipped.target], capture_output=True, timeout=PATIENCE_S
    )
    told = f"seqserve: {source}: 1 passage translated, 0 copied, 0 left\n"
    assert (done.returncode, done.stderr.decode()) == (0, told)
    translated = out.read_text()
    assert re.search(r"<b>[^<]*(?:Auto|Wagen)</b> gekauft", translated)
    assert "<i>tanzen</i>?<script>A <b>red</b> car.</script></p>" in translated
    assert re.search(r'\. <a href="x">(?:Willst du|Möchten Sie)</a> ', translated)


@pytest.mark.slow
def test_a_long_text_is_answered_sentence_by_sentence_in_every_way(translator: Client) -> None:
    text, sentences = long_text(300)
    lines = text.split("\n")
    written = [index for index, line in enumerate(lines) if line]
    whole = translator.generate(text)
    bulk = dict(translator.generate_bulk(lines[index] for index in written))
    spans = [text[each.source_begin : each.source_end] for each in whole.segments]
    assert spans == sentences, "each sentence is answered once"
    answered = whole.text.split("\n")
    assert [bool(line.strip()) for line in answered] == [bool(line) for line in lines]
    texts = [getattr(bulk.pop(number), "text", "") for number in range(len(written))]
    assert texts == [answered[index] for index in written] and not bulk
