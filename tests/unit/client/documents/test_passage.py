"""What of a document is translated, in each format. «» stand around it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve.documents.formats import Format, format_of, parser_of
from seqserve.documents.passage import (
    Link,
    ParseError,
    Passage,
    Translation,
    fits,
    parts,
    parts_of,
    source_of,
    translation_of,
)
from seqserve.documents.plain_text import parse_lines
from seqserve.errors import OptionError
from seqserve.responses import result_of
from seqserve.v1 import generation_pb2

from .marking import ANY_TEXT, CUE, marked, pairs, passages_of, sent


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        "",
        "«a»",
        "\n\n«a b»\r\n \t\r\n«c»\n",
        # The times of a transcript stay.
        "[00:00 --> 00:02] «Hello.»\n",
        "[00:00.000 --> 00:02.500]  «Hello.»",
        "00:00:01,5 --> 00:00:02,5 «Hello.»",
        " [01:02:03] «Hello.»",
        "«12:30 is noon, nearly»",
        "«[1] Smith»",
    ),
)
def test_plain_text(text: str, expected: str) -> None:
    assert marked(Format.TEXT, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        ("a\ndark night. \r\n\r\nAnd\nso.\n", "«a dark night. »\r\n\r\n«And so.»\n"),
        ("a\n\n b\nc", "«a»\n\n« b c»"),
        "\n1\n2\n\n3\n",
        ("[0:01] a\nb\n[0:02] c\n\n", "[0:01] «a b»\n[0:02] «c»\n\n"),
    ),
)
def test_paragraphs_of_plain_text(text: str, expected: str) -> None:
    assert marked(Format.TEXT, text, joins_lines=True) == expected


def test_lines_are_passages_as_they_are() -> None:
    lines = ["a \r\n", "\n", "  \n", "Gr\udcfc\udcdfe\n", "last"]
    passages = list(parse_lines(lines))
    assert "".join(each.before + each.source for each in passages) == "".join(lines)
    assert [each.text for each in passages] == ["a ", "", "  ", "Gr\udcfc\udcdfe", "last"]
    assert passages[0].written(Translation("x")) == "x\r\n"
    fault = "is not UTF-8: byte 0xFC after 2 characters; convert it"
    assert [(each.line, each.fault) for each in passages if each.fault] == [(4, fault)]


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        ("# Title #\n\nSome\ntext.\n", "# «Title» #\n\n«Some text.»\n"),
        "«Title»\n=====\r\n\r\n«Text.»",
        (
            "> one\n> two\n\n- item\n  more\n\n  1. sub\n",
            "> «one two»\n\n- «item more»\n\n  1. «sub»\n",
        ),
        "```\ncode\n```\n\n    indented\n",
        "---\nslug: x\n---\n«Text.»\n",
        "| «a» | «a» |\n|---|---|\n| «b» | «c» |\n",
        '«See» [«the a»](a.md "«t»") «a.»',
        "«So» *«very»* **«good»** `code` «it»",
        "«a snake_case and 2 * 3 stay»",
        "![«alt»](i.png) <b>«bold»</b> <http://x.y>",
        "«one»  \n«two»\\\n«three»\n",
        "<div>\n«raw»\n</div>\n\n[a]: http://x\n",
        "- [ ] «do»\n- [x] «done»\n",
        "***\n\n1. 2\n",
    ),
)
def test_markdown(text: str, expected: str) -> None:
    assert marked(Format.MARKDOWN, text) == expected


def test_json_lines() -> None:
    lines = '{"id": 1, "text": "ä"}\r\n\n {"text": "b\\n\\"c\\"", "n": [1.5, null]}\n'
    first, blank, second, end = marked(Format.JSON_LINES, lines).split("\n")
    assert (first, blank, end) == ('{"id": 1, "text": "«ä»"}\r', "", "")
    assert json.loads(second) == {"text": '«b\n"c"»', "n": [1.5, None]}


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ('{"text": ', ', "price": 19.90, "n": 1e400}'),
        ('{ "id":' + "9" * 5000 + ',"text" :\t', " }"),
        ('{"text": "first", "text": ', ', "a": 1, "a": 2}'),
        ('{"other": "\\ud800 \\u00e4\\/", "t\\u0065xt": ', "}"),
        ('{"a": {"text": "inner"}, "b": ["}", ","], "text": ', ', "c": [{"text": "inner"}]}'),
    ],
)
def test_all_else_in_json_lines_stays_as_it_is(before: str, behind: str) -> None:
    line = f'{before}"\\u00e4 \\"b\\""{behind}\r\n'
    assert marked(Format.JSON_LINES, line) == f'{before}"«ä \\"b\\"»"{behind}\r\n'


def test_faults_of_json_lines_are_reported_and_stay() -> None:
    lines = '{"other": 1}\n[]\nno\n{"text": 5}\n'
    found = passages_of(Format.JSON_LINES, lines)
    faults = [(each.line, each.fault) for each in found if each.fault]
    assert [line for line, _ in faults] == [1, 2, 3, 4]
    assert "no text in the field 'text'" in faults[0][1] and "not JSON" in faults[2][1]


@pytest.mark.parametrize(
    ("kind", "option"), [(Format.JSON_LINES, "--field"), (Format.CSV, "--column")]
)
def test_a_format_of_fields_needs_one(kind: Format, option: str) -> None:
    with pytest.raises(OptionError, match=option):
        parser_of(kind)


REFUSED = [
    *((Format.JSON, text, "line 1 ") for text in ("", "{", '{"a": "b', '{"a" "b"}', "{'a': 1}")),
    (Format.JSON, "[" * 100_000, "line 1 begins JSON that is too deep"),
    (Format.CSV, "id,name\n1,a\n", "line 1 has no column 'text'; --column names one of id, name"),
    (Format.CSV, "", "line 1 has no column 'text', because it is empty"),
    (Format.CSV, 'text\na\n"b', "line 3 has a cell with text outside its quotes"),
    (Format.CSV, 'text\n"a" b\n', "line 2 has a cell with text outside its quotes"),
    (Format.XLIFF, "<xliff>\n<file></xliff>", "line 2 is not well-formed XML: mismatched tag"),
    (Format.XLIFF, "<resources/>", "begins XML of 'resources', not of 'xliff'"),
    (Format.ANDROID, "<xliff/>", "line 1 begins XML of 'xliff', not of 'resources'"),
    (Format.STRINGS, '"a" = "b";\n"c" = "d"', "line 2 is not an entry"),
    (Format.STRINGS, "\n\n{", "line 3 is not an entry"),
    (Format.STRINGS, '"a" = "b;\n', "line 1 is not an entry"),
    (Format.STRINGS, "/* never ends", "line 1 is not an entry"),
    (Format.PO, 'msgid "a"\nmsgstr "b\n', "line 2 "),
    (Format.PO, '\nmsgid "a"\n', "line 2 "),
    (Format.PO, 'msgstr "a"\n', "line 1 "),
    (Format.PO, "<html>", "line 1 "),
    (Format.PO, 'msgid "a"\nmsgid_plural "b"\nmsgstr ""\nfoo', "line 4 "),
    (Format.PO, 'msgid "a"\nmsgid "b"\nmsgstr ""\n', "line 1 "),
    (Format.PO, 'msgid ""\nmsgid_plural "b"\n', "line 1 "),
]


@pytest.mark.parametrize(("kind", "text", "reason"), REFUSED, ids=lambda each: str(each)[:30])
def test_what_is_not_in_its_format_is_refused_by_line(kind: Format, text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        passages_of(kind, text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.md", Format.MARKDOWN),
        ("a.HTM", Format.HTML),
        ("a.srt", Format.SRT),
        ("a", Format.TEXT),
        ("a.TXT", Format.TEXT),
    ],
)
def test_the_suffix_tells_the_format(name: str, kind: Format) -> None:
    assert format_of(Path(name)) is kind


@pytest.mark.parametrize(
    ("suffix", "hint"),
    [
        (".toml", "--format text"),
        (".ass", "--format text"),
        (".pdf", r"save it as \.docx"),
        (".doc", r"save it as \.docx"),
        (".xls", r"save it as \.xlsx"),
    ],
)
def test_an_unknown_suffix_is_refused(suffix: str, hint: str) -> None:
    with pytest.raises(OptionError, match=rf"a\{suffix}: \{suffix} is not a known format; {hint}"):
        format_of(Path(f"a{suffix}"))


PIECES = ["a word", " ", "\n", "\r\n", "é 🙂", "*", "**", "_", "`", "[", "](u)", "# ", "- ", "> "]
PIECES += ["<p>", "</p>", "<b>", "</b>", "<br>", "&amp;", "<script>x</script>", "<!-- c -->", "|"]
PIECES += ["1\n00:00:01,000 --> 00:00:02,000\n", "{", '{"text": "a"}', "\n\n", "\t", "---\n", "\\"]
DOCUMENTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=40)


@given(DOCUMENTS)
@settings(max_examples=300)
def test_nothing_is_lost_where_nothing_is_translated(text: str) -> None:
    for kind in ANY_TEXT:
        lines = [each.line for each in passages_of(kind, text)]
        assert lines == sorted(lines)


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


def alignment(*links: Link) -> generation_pb2.Alignment:
    begins, ends, target_begins, target_ends = zip(*links, strict=True)
    return generation_pb2.Alignment(
        source_begins=begins, source_ends=ends, target_begins=target_begins, target_ends=target_ends
    )


def test_the_alignment_of_an_undivided_text_is_its_own() -> None:
    message = response("Der Hund")
    links = (Link(0, 3, 0, 3), Link(4, 7, 4, 8))
    message.hypotheses[0].alignment.CopyFrom(alignment(*links))
    assert translation_of(result_of(message)) == ("Der Hund", links, ())


def test_alignments_of_segments_count_from_the_whole_text() -> None:
    message = response("Ja. ☺ ")
    answered = message.segments.add(source_begin=0, source_end=4, target_begin=0, target_end=3)
    answered.hypotheses.add(text="Ja.", alignment=alignment(Link(0, 3, 0, 2)))
    message.segments.add(source_begin=5, source_end=6, target_begin=4, target_end=5)
    # What no model reads is in the text as it is.
    links = (Link(0, 3, 0, 2), Link(5, 6, 4, 5))
    assert translation_of(result_of(message)) == ("Ja. ☺ ", links, ())


UNKNOWN = generation_pb2.SOURCE_WARNING_UNKNOWN_CHARACTERS
UNREAD = [UNKNOWN, generation_pb2.SOURCE_WARNING_OTHER_SCRIPT]


@pytest.mark.parametrize(
    ("warnings", "text"),
    [
        ([UNREAD, []], "Ja. ?"),
        # A model of bytes has only one of them.
        ([UNREAD, UNREAD[1:]], "Ja. ?"),
        ([UNREAD, UNREAD], ""),
    ],
)
def test_a_text_whose_script_the_model_does_not_read_has_no_translation(
    warnings: list[list[Any]], text: str
) -> None:
    message = response("Ja. ?")
    message.source_warnings.extend(UNREAD)
    for own in warnings:
        message.segments.add(hypotheses=message.hypotheses, source_warnings=own)
    # A segment without a letter is in the text as it is.
    message.segments.add()
    translation = translation_of(result_of(message))
    assert (translation.text, bool(translation.fault)) == (text, not text)


def test_a_translation_with_characters_that_are_none_is_warned_of() -> None:
    [warning] = translation_of(result_of(response("Der Wert von \ufffd ist 5."))).warnings
    assert warning == "garbled: some letters of the source"


SENTENCES = "I. " * 3000


@pytest.mark.parametrize(
    "text", ["word " * 50_000, SENTENCES, "a" * 250_000, "はい。" * 3000, "A...... " * 20_000]
)
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (Format.TEXT, "{}\n"),
        (Format.HTML, "<p>{}</p>"),
        (Format.HTML, "<p><b>a</b> {}</p>"),
        (Format.MARKDOWN, "> 1\n> 2 {}\n"),
        (Format.SRT, CUE + "{}\r\n"),
        (Format.JSON_LINES, '{{"text": "{}", "\\u0061": 1}}\n'),
    ],
)
def test_a_long_text_is_sent_in_parts(kind: Format, place: str, text: str) -> None:
    document = place.format(text)
    passages = passages_of(kind, document)
    parts = sent(passages)
    assert len(parts) > 1
    assert max(map(len, parts)) <= 100_000
    # The server takes 4,096 segments.
    assert max(len(re.findall(r"[.。]+", part)) for part in parts) < 4096
    joined = "".join(each.before + each.source for each in passages)
    assert joined == document


def test_parts_of_a_text_end_after_sentences_or_words() -> None:
    assert {part.rstrip()[-1] for part in parts(SENTENCES)} == {"."}
    assert {part[-1] for part in parts("word " * 50_000 + "word")} == {"d"}
    assert {part[-1] for part in parts("はい。" * 3000)} == {"。"}


@given(
    st.lists(st.sampled_from(["a. ", "b", " ", "…", "\u2028", "é", "!" * 50])), st.integers(1, 999)
)
def test_parts_are_the_text(words: list[str], times: int) -> None:
    text = "".join(words) * times
    divided = parts(text)
    assert "".join(divided) == text
    assert all(map(fits, divided))


@pytest.mark.parametrize(
    "text", ['"a \\u00e4\\n\\ud83d\\ude00 \\"b\\" "', '"é \\ud83d x\\/ "', '"a\\\\ud83d\\ude00 "']
)
def test_escapes_of_a_long_text_in_json_are_kept(text: str) -> None:
    long = f'"{text[1:-1] * 20_000}"'
    line = f'{{"text": {long}, "n": 1}}'
    passages = passages_of(Format.JSON_LINES, line)
    kept = [each for each in passages if each.has_words]
    assert len(kept) > 1
    assert all(json.loads(f'"{each.source}"') == each.text for each in kept)


WORDLESS = ["102", "2024-05-17", "$5.99", "♪ ♪", "...", "-----", ", ", "\u2163", "😀", "3 × 4 = 12"]
PLACES = [
    (Format.TEXT, "{}\n"),
    (Format.HTML, "<td>{}</td>"),
    (Format.HTML, "<p><code>a</code>{}<code>b</code></p>"),
    (Format.HTML, "<p>{}<b>{}</b> </p>"),
    (Format.MARKDOWN, "# {}\n"),
    (Format.MARKDOWN, "> 1\n> 2 {}\n"),
    (Format.SRT, CUE + "{}\r\n<i>{}</i>\r\n"),
    (Format.VTT, "WEBVTT\n\n00:01.000 --> 00:02.000\n{}\n"),
    (Format.JSON_LINES, '{{"text": "{}", "\\u0061": 1}}\n'),
]


@pytest.mark.parametrize("text", WORDLESS)
@pytest.mark.parametrize(("kind", "place"), PLACES)
def test_a_passage_without_a_letter_stays_to_the_byte(kind: Format, place: str, text: str) -> None:
    document = place.format(text, text)
    assert marked(kind, document) == document


@given(st.text(st.characters(exclude_categories=["L", "C", "Z"]) | st.sampled_from(" \n\r\t<>&|*")))
def test_any_document_without_a_letter_stays_to_the_byte(text: str) -> None:
    for kind in ANY_TEXT:
        assert marked(kind, text) == text, kind
