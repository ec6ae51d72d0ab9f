"""What of a table in CSV is translated. «» stand around it."""

import csv
import io
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.documents.formats import Format
from seqserve.documents.passage import Translation

from .marking import marked, pairs, passages_of, written


@pytest.mark.parametrize(
    ("text", "expected"),
    pairs(
        "id,text\n1,«a b»\n2,«c»\n",
        '"text";id\r\n"«a»";"1"\r\n«b»;"2"',
        "id\ttext\r1\t«a, b»\r\r",
        'id|text\n1|"«a ""b""\nc»"\n2|«d "e"»\n',
        'text\n"%s, {n}"\n\n12\n',
        "id,text\n1\n2,«a»,b\n",
        'text\n"<a href=""x"">«b»</a> «c»"\n',
        'text\tid\n«"a" b»\t1\n«"c»\t2\n"«d»"\t3',
        "text",
        "sep=;\r\nid;text\r\n1;«a, b»\r\n",
        '"sep=!"\ntext!id\n«a»!b\n',
    ),
)
def test_a_column(text: str, expected: str) -> None:
    assert marked(Format.CSV, text) == expected


@pytest.mark.parametrize("translation", ["a, b", "a\nb", '"a" b', 'a "b"', "a"])
@pytest.mark.parametrize("cell", ["x", '"x"'])
def test_a_translation_is_quoted_where_it_must_be(translation: str, cell: str) -> None:
    [passage] = [each for each in passages_of(Format.CSV, f"text\n{cell}") if each.has_words]
    result = f"text\n{passage.written(Translation(translation))}"
    assert [*csv.reader(io.StringIO(result, newline=""))] == [["text"], [translation]]


CELLS = st.lists(
    st.sampled_from(["a", "b c", ",", ";", '"', "\n", "\r\n", " ", "%s", "{n}", "<b>x</b>", "é"])
).map("".join)


@given(
    st.lists(st.tuples(CELLS, CELLS)),
    st.sampled_from([",", ";", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_any_table_stays_to_the_byte_and_has_the_same_cells_when_translated(
    rows: list[tuple[str, str]], delimiter: str, end: str, quoting: int
) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
    table = [("id", "text"), *rows]
    writer.writerows(table)
    text = file.getvalue()
    passages = passages_of(Format.CSV, text)
    again = [*csv.reader(io.StringIO(written(passages), newline=""), delimiter=delimiter)]
    assert [row[0] for row in again] == [row[0] for row in table]
    # Placeholders within a word are behind it.
    characters = [[Counter("".join(row[1].split())) for row in cells] for cells in (table, again)]
    assert characters[0] == characters[1]
