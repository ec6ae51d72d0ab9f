"""Dividing and joining lose nothing, whatever the text."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.server.front.echo import byte_tokenizer, manifest

from seqserve_server.contract.options import DecodingOptions, SegmentationMode
from seqserve_server.front.generate.records import Options, Part
from seqserve_server.front.generate.source import SourceReader
from seqserve_server.front.overload.turns import run_now
from seqserve_server.text.splitting import Segmentation, TextJoiner

LIMIT = manifest().limits.max_source_length
PIECES = ["Dr. ", "e.g. ", "3.5 ", "Hello", ". ", "! ", "\n", "\r\n"]
PIECES += ["\n\n", "\u2028", " ", "\t", "。", "「はい。」", "、", "안녕. "]
PIECES += ["ok, ", "é", "e\u0301", "🙂", "\ufeff", "«", "» ", "x" * 70]
TEXTS = st.one_of(st.lists(st.sampled_from(PIECES)).map("".join), st.text())
SEGMENTATIONS = st.builds(
    Segmentation,
    st.sampled_from([SegmentationMode.LINES, SegmentationMode.SENTENCES]),
    st.sampled_from(["en", "de", "ja", "ar"]),
    # What was asked for; by default a lone sentence is not divided.
    st.just(False),
)


@dataclass
class Model:
    tokenizer: Any
    manifest: Any


MODEL: Any = Model(byte_tokenizer(), manifest())
OPTIONS = DecodingOptions(max_decoding_length=48)


def divided(text: str, segmentation: Segmentation) -> list[Part]:
    reader = SourceReader(MODEL, Options(decoding=OPTIONS, segmentation=segmentation))
    return run_now(reader.read(text)).parts


@given(TEXTS.filter(str.strip), SEGMENTATIONS)
def test_every_character_is_in_one_segment_or_is_white_space(
    text: str, segmentation: Segmentation
) -> None:
    end = 0
    for segment in divided(text, segmentation):
        assert not text[end : segment.span.begin].strip()
        source = text[slice(*segment.span)]
        assert source == source.strip() != ""
        assert len(MODEL.tokenizer.encode(source)) <= LIMIT
        end = segment.span.end
    assert not text[end:].strip()


@given(TEXTS.filter(str.strip), SEGMENTATIONS)
def test_answers_that_are_their_sources_join_to_the_text(
    text: str, segmentation: Segmentation
) -> None:
    joint = TextJoiner(text)
    pieces = [joint.add(each.span, text[slice(*each.span)]) for each in divided(text, segmentation)]
    assert "".join(pieces) + joint.rest() == text


@given(TEXTS.filter(str.strip), SEGMENTATIONS, st.data())
@examples(50)
def test_white_space_between_any_answers_is_that_of_the_source(
    text: str, segmentation: Segmentation, data: st.DataObject
) -> None:
    """But for one space where the source has none and its script needs none."""
    joint = TextJoiner(text)
    end = 0
    for segment in divided(text, segmentation):
        answer = data.draw(st.sampled_from(["", "a", "b b", "。"]))
        gap, got = text[end : segment.span.begin], joint.add(segment.span, answer)
        assert got == gap + answer or (not gap and got == " " + answer)
        end = segment.span.end
    assert joint.rest() == text[end:]
