"""What of a document is translated, in each format. «» stand around it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqserve.documents.formats import Format, format_of, parser_of
from seqserve.documents.passage import Translation
from seqserve.documents.plain_text import parse_lines
from seqserve.errors import OptionError

from .marking import ANY_TEXT, marked, passages_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a", "«a»"),
        ("\n\na b\r\n \t\r\nc\n", "\n\n«a b»\r\n \t\r\n«c»\n"),
    ],
)
def test_plain_text(text: str, expected: str) -> None:
    assert marked(Format.TEXT, text) == expected


def test_paragraphs_of_plain_text() -> None:
    text = "It was a\ndark night. \r\n\r\nAnd\nso on.\n"
    assert marked(Format.TEXT, text, joins_lines=True) == (
        "«It was a dark night. »\r\n\r\n«And so on.»\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n\n b\nc", "«a»\n\n« b c»"),
        ("\n1\n2\n\n3\n", "\n1\n2\n\n3\n"),
        ("[0:01] a\nb\n[0:02] c\n\n", "[0:01] «a b»\n[0:02] «c»\n\n"),
    ],
)
def test_what_divides_paragraphs_of_plain_text(text: str, expected: str) -> None:
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
    [
        ("[00:00 --> 00:02] Hello.\n", "[00:00 --> 00:02] «Hello.»\n"),
        ("[00:00.000 --> 00:02.500]  Hello.", "[00:00.000 --> 00:02.500]  «Hello.»"),
        ("00:00:01,5 --> 00:00:02,5 Hello.", "00:00:01,5 --> 00:00:02,5 «Hello.»"),
        (" [01:02:03] Hello.", " [01:02:03] «Hello.»"),
        ("12:30 is noon, nearly", "«12:30 is noon, nearly»"),
        ("[1] Smith", "«[1] Smith»"),
    ],
)
def test_times_of_a_transcript_stay(text: str, expected: str) -> None:
    assert marked(Format.TEXT, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Title #\n\nSome\ntext.\n", "# «Title» #\n\n«Some text.»\n"),
        ("Title\n=====\r\n\r\nText.", "«Title»\n=====\r\n\r\n«Text.»"),
        (
            "> one\n> two\n\n- item\n  more\n\n  1. sub\n",
            "> «one two»\n\n- «item more»\n\n  1. «sub»\n",
        ),
        ("```\ncode\n```\n\n    indented\n", "```\ncode\n```\n\n    indented\n"),
        ("---\ntitle: x\n---\nText.\n", "---\ntitle: x\n---\n«Text.»\n"),
        ("| a | a |\n|---|---|\n| b | c |\n", "| «a» | «a» |\n|---|---|\n| «b» | «c» |\n"),
        ('See [the a](a.md "t") a.', '«See» [«the a»](a.md "t") «a.»'),
        ("So *very* **good** `code` it", "«So» *«very»* **«good»** `code` «it»"),
        ("a snake_case and 2 * 3 stay", "«a snake_case and 2» * «3 stay»"),
        ("![alt](i.png) <b>bold</b> <http://x.y>", "![alt](i.png) <b>«bold»</b> <http://x.y>"),
        ("one  \ntwo\\\nthree\n", "«one»  \n«two»\\\n«three»\n"),
        ("<div>\nraw\n</div>\n\n[a]: http://x\n", "<div>\nraw\n</div>\n\n[a]: http://x\n"),
        ("- [ ] do\n- [x] done\n", "- [ ] «do»\n- [x] «done»\n"),
        ("***\n\n1. 2\n", "***\n\n1. 2\n"),
    ],
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
    assert "".join(each.before + each.source for each in found) == lines


def test_json_lines_need_a_field() -> None:
    with pytest.raises(OptionError, match="--field"):
        parser_of(Format.JSON_LINES, field=None, column=None, joins_lines=False)


def test_csv_needs_a_column() -> None:
    with pytest.raises(OptionError, match="--column"):
        parser_of(Format.CSV, field=None, column=None, joins_lines=False)


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


@pytest.mark.parametrize("suffix", [".toml", ".ass", ".pdf", ".doc"])
def test_an_unknown_suffix_is_refused(suffix: str) -> None:
    with pytest.raises(OptionError, match=rf"a\{suffix}: \{suffix} is no format .*--format text"):
        format_of(Path(f"a{suffix}"))


PIECES = ["a word", " ", "\n", "\r\n", "é 🙂", "*", "**", "_", "`", "[", "](u)", "# ", "- ", "> "]
PIECES += ["<p>", "</p>", "<b>", "</b>", "<br>", "&amp;", "<script>x</script>", "<!-- c -->", "|"]
PIECES += ["1\n00:00:01,000 --> 00:00:02,000\n", "{", '{"text": "a"}', "\n\n", "\t", "---\n", "\\"]
DOCUMENTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=40)


@given(DOCUMENTS)
@settings(max_examples=300)
def test_nothing_is_lost_where_nothing_is_translated(text: str) -> None:
    for kind in ANY_TEXT - {Format.MARKDOWN}:
        found = passages_of(kind, text)
        assert "".join(each.before + each.source for each in found) == text, kind


@given(DOCUMENTS)
@settings(max_examples=300)
def test_words_and_marks_survive_where_lines_are_joined(text: str) -> None:
    """White space between the lines of a paragraph, and the marks before them, may go."""
    found = passages_of(Format.MARKDOWN, text)
    kept = "".join(each.before + each.source for each in found)
    assert re.sub(r"[\s>]", "", kept) == re.sub(r"[\s>]", "", text)
    lines = [each.line for each in found]
    assert lines == sorted(lines)
