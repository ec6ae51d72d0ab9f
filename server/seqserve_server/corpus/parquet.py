"""Corpora in Parquet: a column is read, and one or two are added."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow
from pyarrow import parquet

from seqserve.errors import OptionError
from seqserve.files import written_whole
from seqserve_server.corpus.corpus_file import Answer, Place, score_field

_ROWS = 4096


class ParquetFile:
    """A file of Parquet; its other columns, and their order, stay."""

    unit = "rows"

    def __init__(self, path: Path, field: str, into: str, *, has_scores: bool) -> None:
        self._path, self._field, self._into = path, field, into
        self._has_scores = has_scores
        try:
            with parquet.ParquetFile(path) as file:
                self._schema = file.schema_arrow
                self._rows = int(file.metadata.num_rows)
        except (OSError, pyarrow.ArrowException) as error:
            raise OptionError(f"{path}: {error}") from None
        if field not in self._schema.names or not _is_text(self._schema.field(field).type):
            listed = ", ".join(self._schema.names)
            raise OptionError(f"--field: {path} has no column {field!r} of texts, but {listed}")
        for name in (into, score_field(into)):
            if name in self._schema.names:
                raise OptionError(f"--into: {path} has a column {name!r} already")

    def count(self) -> int:
        """Counts the rows."""
        return self._rows

    def places(self) -> Iterator[Place]:
        """Yields the place of each row; its text is empty where the row has none."""
        for batch in self._batches([self._field]):
            for text in batch.column(0).to_pylist():
                yield Place(text or "")

    def write(self, out: Path, answers: Iterable[Answer]) -> None:
        """Writes the rows with their answers; a row without one has null."""
        schema = self._schema.append(pyarrow.field(self._into, pyarrow.string()))
        if self._has_scores:
            schema = schema.append(pyarrow.field(score_field(self._into), pyarrow.float32()))
        left = iter(answers)
        with (
            written_whole(out, option="OUT") as file,
            parquet.ParquetWriter(file, schema) as writer,
        ):
            for batch in self._batches(None):
                own = list(islice(left, batch.num_rows))
                added = [pyarrow.array([each.text for each in own], pyarrow.string())]
                if self._has_scores:
                    added.append(pyarrow.array([each.score for each in own], pyarrow.float32()))
                writer.write_batch(pyarrow.record_batch([*batch.columns, *added], schema=schema))

    def _batches(self, columns: list[str] | None) -> Iterator[pyarrow.RecordBatch]:
        try:
            with parquet.ParquetFile(self._path) as file:
                yield from file.iter_batches(_ROWS, columns=columns)
        except (OSError, pyarrow.ArrowException) as error:
            raise OptionError(f"{self._path}: {error}") from None


def _is_text(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))
