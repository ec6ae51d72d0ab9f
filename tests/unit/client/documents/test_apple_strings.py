"""What of a .strings file is translated. «» stand around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format
from seqserve.documents.passage import ParseError

from .marking import marked, passages_of
from .test_subtitles import written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a" = "b";\n', '"a" = "«b»";\n'),
        (
            '/* "x" = "y"; */\r\nKEY_1="b";// "c" = "d";',
            '/* "x" = "y"; */\r\nKEY_1="«b»";// "c" = "d";',
        ),
        ('"a \\"b\\" = c" /* d */ = /* e */ "f" ;', '"a \\"b\\" = c" /* d */ = /* e */ "«f»" ;'),
        (
            '"a" = "\\tb \\"c\\" \\U00e4\\n%1$@ d\\n";',
            '"a" = "\\t«b \\"c\\" ä\\n»%1$@ «d»\\n";',
        ),
        ('"a" = "%#@files@: %d";"b";', None),
        ("/* nothing */", None),
        ("", None),
    ],
)
def test_values_are_translated(text: str, expected: str | None) -> None:
    assert marked(Format.STRINGS, text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "line"),
    [('"a" = "b";\n"c" = "d"', 2), ("\n\n{", 3), ('"a" = "b;\n', 1), ("/* never ends", 1)],
)
def test_what_is_no_entry_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ParseError, match=f"line {line} is no entry"):
        passages_of(Format.STRINGS, text)


STRINGS = st.lists(
    st.sampled_from(
        ["a", "%@", '\\"', "\\n", "\\U0041", "\n", " ", "é", "/*", "//", "<b>x</b>", "="]
    )
).map("".join)
GAPS = st.sampled_from(["", " ", "\n", "/* ; */", '// "x\n'])


@given(st.lists(st.tuples(STRINGS, GAPS, STRINGS, GAPS)))
def test_any_file_stays_to_the_byte_and_is_read_again(
    entries: list[tuple[str, str, str, str]],
) -> None:
    text = "".join(f'"{key}"{gap}={end}"{value}"{gap};{end}' for key, gap, value, end in entries)
    passages = passages_of(Format.STRINGS, text)
    assert "".join(each.before + each.source for each in passages) == text
    again = passages_of(Format.STRINGS, written(passages))
    assert [each.text for each in again] == [each.text for each in passages]
