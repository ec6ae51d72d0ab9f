from __future__ import annotations

from collections.abc import Iterator

from seqserve.documents.passage import Link, Passage, parts_of, source_of, translation_of
from seqserve.responses import result_of
from seqserve.v1 import generation_pb2


def split() -> Iterator[Passage]:
    yield Passage(line=1, before="<b>", source="a", text="a")
    yield Passage(line=3, before="</b>\n\n", source="b", text="b")


MARKED = Passage(line=5, before="# ", source="<b>a</b>\n\nb", text="a b", split_passages=split)


def test_markup_asks_for_an_alignment_and_what_is_kept_is_named() -> None:
    assert source_of(Passage(line=1, text="a")) == ("a", {})
    assert source_of(MARKED) == ("a b", {"return_alignment": True})
    kept = Passage(line=1, text="{name} a", kept=("{name}",))
    assert source_of(kept) == ("{name} a", {"keep": ["{name}"]})


def test_parts_stand_where_their_passage_does() -> None:
    assert [*parts_of(Passage(line=1, text="a"))] == []
    first, second = parts_of(MARKED)
    assert (first.line, first.before) == (5, "# <b>")
    assert (second.line, second.before) == (7, "</b>\n\n")
    joined = "".join(part.before + part.source for part in (first, second))
    assert joined == MARKED.before + MARKED.source


def response(text: str) -> generation_pb2.GenerateResponse:
    return generation_pb2.GenerateResponse(hypotheses=[generation_pb2.Hypothesis(text=text)])


def test_the_alignment_of_an_undivided_text_is_its_own() -> None:
    message = response("Der Hund")
    alignment = message.hypotheses[0].alignment
    alignment.source_begins.extend([0, 4])
    alignment.source_ends.extend([3, 7])
    alignment.target_begins.extend([0, 4])
    alignment.target_ends.extend([3, 8])
    links = (Link(0, 3, 0, 3), Link(4, 7, 4, 8))
    assert translation_of(result_of(message)) == ("Der Hund", links)


def test_alignments_of_segments_count_from_the_whole_text() -> None:
    message = response("Ja. ☺ ")
    answered = message.segments.add(source_begin=0, source_end=4, target_begin=0, target_end=3)
    alignment = answered.hypotheses.add(text="Ja.").alignment
    alignment.source_begins.append(0)
    alignment.source_ends.append(3)
    alignment.target_begins.append(0)
    alignment.target_ends.append(2)
    message.segments.add(source_begin=5, source_end=6, target_begin=4, target_end=5)
    # What no model reads is in the text as it is.
    links = (Link(0, 3, 0, 2), Link(5, 6, 4, 5))
    assert translation_of(result_of(message)) == ("Ja. ☺ ", links)
