from pathlib import Path
from typing import Any

import pytest

from seqserve.errors import OptionError
from seqserve_server.corpus.corpus_file import NOTHING, Answer, failed

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

from seqserve_server.corpus.parquet import ParquetFile  # noqa: E402

ROWS: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "text": ["one", None, "three"],
    "tags": [["a"], [], None],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    parquet.write_table(pyarrow.table(ROWS), tmp_path / "in.parquet", row_group_size=2)
    return tmp_path / "in.parquet"


def test_rows_get_a_column(file: Path) -> None:
    corpus = ParquetFile(file, "text", "target", has_scores=True)
    assert corpus.count() == 3
    assert [place.text for place in corpus.places()] == ["one", "", "three"]
    out = file.with_name("out.parquet")
    corpus.write(out, [Answer("eins", -0.5), NOTHING, failed("no")])
    found = parquet.read_table(out).to_pydict()
    assert found == {**ROWS, "target": ["eins", None, None], "target_score": [-0.5, None, None]}


@pytest.mark.parametrize(
    ("field", "into", "message"),
    [
        ("words", "target", "--field: .* has no column 'words' of texts, but id, text, tags"),
        ("id", "target", "--field: .* has no column 'id' of texts"),
        ("text", "tags", "--into: .* has a column 'tags' already"),
    ],
)
def test_columns_that_do_not_fit_are_named(file: Path, field: str, into: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ParquetFile(file, field, into, has_scores=False)


def test_a_file_that_is_no_parquet_is_named(file: Path) -> None:
    file.write_text("text", encoding="utf-8")
    with pytest.raises(OptionError, match=r"in\.parquet: "):
        ParquetFile(file, "text", "target", has_scores=False)
