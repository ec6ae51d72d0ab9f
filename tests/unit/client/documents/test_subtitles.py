"""What of subtitles is translated. «» stand around it."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format
from seqserve.documents.passage import Translation

from .marking import CUE, aligned, marked, pairs, passages_of, sent, written

VTT = "WEBVTT - a title\n\nNOTE\nno\n\nSTYLE\n::cue {}\n\nid\n00:01.000 --> 00:02.000 line:1\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        f"{CUE}«one two»\r\n\r\n{CUE}«three»",
        (f"{CUE}one\r\ntwo three\r\n", f"{CUE}«one two\r\nthree»\r\n"),
        f"{CUE}- «one»\r\n- «two»\r\n",
        f"{CUE}>> «one»\r\n>>> «two > 1»",
        f"{VTT}&gt;&gt; «one»\n<i>&gt;&gt;«two»",
        f"{CUE}<i>«one»</i> {{\\an8}}«two»\n",
        f"{CUE}«one»\r\n\r\n«two»\r\n \r\n{CUE}«three»",
        f"{CUE}«one»\r\n{CUE}«two»",
        f"{CUE}«one\r\n42»\r\n\r\n{CUE}«two»",
        f"{CUE}- «one\r\ntwo»\r\n- «three»",
        f"{CUE}<i>- «one»</i>\r\n<i>- «two»</i>",
        f"{CUE}\r\n{CUE}«one»",
        f"{CUE}«[one]»\r\n«(two) A: b»\r\n",
        f"{CUE}«♪ one ♪»\r\n<i>«♪ two ♪»</i>\r\n",
        (f"{CUE}one\\Ntwo three\n", f"{CUE}«one two\\Nthree»\n"),
        f"{CUE}«one\\Ntwo\nthree» {{\\i1}}4\n",
        f"{VTT}<v Tom>«so»\n",
    ),
)
def test_subtitles(text: str, expected: str) -> None:
    assert marked(Format.SRT, text) == expected
    assert marked(Format.VTT, text) == expected


def test_text_behind_a_note_or_before_the_first_cue_stays() -> None:
    text = (
        "WEBVTT\nKind: captions\n\nfoo\n\nNOTE a\nb\n\nid\n00:01.000 --> 00:02.000\n{}\n\nNOTE c\n"
    )
    assert marked(Format.VTT, text.format("x &amp; y")) == text.format("«x &amp; y»")


@pytest.mark.parametrize(
    ("cue", "text"),
    [
        ("I <i>like</i> it\n", "I like it"),
        ("<i>I <b>like</b> it\nvery much</i>\n", "I like it very much"),
        ('one <font color="red">big red\ncar</font> came\n', "one big red car came"),
        ("one {\\i1}big\n{\\i0}car\n", "one big car"),
        ("<i>one</i> <i>two</i>\n", "one two"),
    ],
)
def test_tags_of_a_cue_follow_its_words(cue: str, text: str) -> None:
    passages = passages_of(Format.SRT, CUE + cue)
    assert sent(passages) == [text]
    found = written(passages)
    assert re.sub(r"\s+", " ", found) == re.sub(r"\s+", " ", CUE + cue)
    assert found.count("\n") == (CUE + cue).count("\n")


def test_a_dash_within_a_speech_begins_no_line() -> None:
    [passage, *_] = passages_of(Format.SRT, CUE + "one two\nthree - four")
    target = passage.written(Translation("ONE - TWO THREE"))
    assert target == "ONE - TWO\nTHREE"


def test_times_within_a_cue_of_webvtt_are_behind_their_word_and_grow() -> None:
    head = "WEBVTT\n\n00:01.000 --> 00:02.000\n"
    passages = passages_of(Format.VTT, text := f"{head}so <00:01.500>what &lt;is it\n")
    assert sent(passages) == ["so what <is it"] and written(passages) == text
    [passage, *_] = passages_of(Format.VTT, f"{head}a <00:01.400>red <00:01.500>car\n")
    # Wherever the words go.
    target = passage.written(aligned(passage, "CAR RED A", "car red a"))
    assert re.findall("<[^>]+>", target) == ["<00:01.400>", "<00:01.500>"]


LINES = ["one", "two three", "- one", "<i>- one</i>", "<i>one", "two</i>", "<b>a <u>b</u></b> c"]
LINES += ["", " ", "12", "NOTE a", "STYLE", "id", "♪ ♪", "{\\an8}a", "<v Tom>so", "a < b"]
LINES += ["00:01.000 --> 00:02.000 line:1", "00:00:01,000 --> 00:00:02,000"]


@given(
    st.sampled_from(["", "WEBVTT\n\n"]),
    st.lists(st.sampled_from(LINES)),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_times_stay_and_all_of_a_cue_is_translated(head: str, lines: list[str], end: str) -> None:
    text = (head + "".join(f"{line}\n" for line in lines)).replace("\n", end)
    passages = passages_of(Format.SRT, text)
    numbers = [each.line for each in passages]
    assert numbers == sorted(numbers)
    result = written(passages)
    times = [line for line in text.split(end) if "-->" in line]
    assert [line for line in result.split(end) if "-->" in line] == times
    # WebVTT escapes what would be markup.
    assert re.sub(r"\s", "", html.unescape(result)) == re.sub(r"\s", "", text)
    assert result.count(end) <= text.count(end)
