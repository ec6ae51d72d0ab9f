"""Translates files, and keeps them until their callers fetch them.

LibreTranslate's caller waits for the file and gets an address. DeepL's caller gets an id and a key
at once; the gateway translates the file after that answer, and keeps the place and the memory of
its request.
"""

import asyncio
import json
import math
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from hmac import compare_digest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from seqserve.arguments import GenerateOptions
from seqserve.documents.attributes import Languages
from seqserve.documents.formats import Format
from seqserve_gateway.admission import Turns
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure, failure_of, refusal
from seqserve_gateway.fields import File
from seqserve_gateway.reading import Job
from seqserve_gateway.translation import Reading, answers_of

SUFFIXES = tuple(
    suffix
    for kind in Format
    if kind not in (Format.JSON_LINES, Format.CSV)
    for suffix in filter(None, kind.suffixes)
)
"""Of the files that are translated; JSON lines and CSV need a name of what to translate."""
_LONGEST_REPORT = 2500
_AT_ONCE, _OWN, _MOST_WAITING = 4, 3, 16
_GRACE_S = 5.0
"""Beyond the deadline of a document, after which no process can be translating it."""
_BYTES_OF_ROW = 1000
_TABLE = """CREATE TABLE IF NOT EXISTS document (id UNIQUE, key, name, state, until_s, size,
 begun_s, took_s, content BLOB, characters, fault, report)"""
_GONE = "this file does not exist or has expired; translate it again"
_ENDED = "its deadline passed, or the gateway shut down; send it again"


def suffix_of(file: File, field: str) -> str:
    """Returns the suffix of a file, in lower case; refuses one that is not translated."""
    if (suffix := Path(file.name).suffix.lower()) not in SUFFIXES:
        unnamed = f"the name {file.name!r} has no suffix, which tells the format"
        reason = f"the format of {file.name} is not supported" if suffix else unnamed
        raise refusal(field, f"{reason}; use one of {', '.join(SUFFIXES)}")
    return suffix


async def translated_file(
    call: Call,
    file: File,
    source: str,
    target: str,
    field: str,
    options: GenerateOptions | None = None,
) -> tuple[File, dict[str, Any], int]:
    """Translates the text of a file; all else stays.

    Returns:
        The file, what became of its texts, and how many characters they have.
    """
    suffix_of(file, field)
    languages, path = Languages(source, target), Path(file.name)
    reading = Reading(call, Job(file.name, content=file.content, languages=languages), field)
    _, answers = await answers_of(call, reading, source, target, options)
    content, facts = await reading("write_file", answers)
    return File(f"{path.stem}_{target}{path.suffix}", content), facts, reading.characters


class Documents:
    """Translated files, of bounded size and age."""

    def __init__(
        self,
        folder: Path | None = None,
        max_bytes: int = 32 << 20,
        kept_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the documents of a folder, which processes may share; None keeps them in memory.

        Args:
            max_bytes: Size of all files; the oldest make room.
            kept_s: Time for which each is kept, after it was translated.
            clock: Seconds, from an origin that all processes have.
        """
        self._max_bytes, self._kept_s, self._clock = max_bytes, kept_s, clock
        self._turns = Turns(_AT_ONCE, _OWN, _MOST_WAITING)
        path = folder / "documents" if folder else ":memory:"
        # Each statement is a transaction, and nothing needs to outlast the system.
        self._rows = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._rows.row_factory = sqlite3.Row
        self._rows.execute("PRAGMA synchronous = OFF")
        self._rows.execute(_TABLE)

    def add(self, file: File) -> str:
        """Stores a translated file, if there is room for it; returns its id, which is a secret."""
        id_ = secrets.token_urlsafe(16)
        return self._added(id_, name=file.name, content=file.content, state="done")

    def get(self, id_: str) -> File:
        """Returns a file whose id is enough to read it."""
        row = self._row(id_, "name, content")
        return File(row["name"], row["content"])

    def begin(
        self, call: Call, file: File, source: str, target: str, options: GenerateOptions
    ) -> Mapping[str, str]:
        """Returns the id and the key of a file that is translated after the answer to its call.

        Raises:
            Failure: Too many of the caller's files wait, or the room for files is full.
        """
        self._turns.check(call.caller)
        until_s = self._clock() + call.left_s + _GRACE_S
        id_, key = secrets.token_hex(16).upper(), secrets.token_hex(32).upper()
        self._added(id_, key=key, state="queued", size=len(file.content), until_s=until_s)

        async def work() -> None:
            try:
                async with self._turns.turn(call.caller):
                    begun_s = self._clock()
                    self._change(id_, state="translating", begun_s=begun_s)
                    written, facts, characters = await translated_file(
                        call, file, source, target, "file", options
                    )
                ended: dict[str, Any] = {"state": "done", "until_s": self._clock()}
                ended |= {"took_s": ended["until_s"] - begun_s, "characters": characters}
                ended |= {"name": written.name, "content": written.content}
                self._change(id_, **ended, report=report_of(facts))
            except asyncio.CancelledError:
                self._change(id_, state="error", fault=_ENDED)
                raise
            except Exception as error:
                failure = failure_of(error, call.request_id).named_by(call.names)
                self._change(id_, state="error", fault=failure.details)
                raise failure from None

        call.afterwards = work
        return {"document_id": id_, "document_key": key}

    def status(self, id_: str, key: str) -> Mapping[str, Any]:
        """Returns the status of a file, as DeepL's clients read it."""
        row = self._row(id_, "state, until_s, size, begun_s, characters, fault", key)
        facts: dict[str, Any] = {"document_id": id_, "status": row["state"]}
        if row["state"] == "done":
            facts["billed_characters"] = row["characters"]
        elif row["state"] == "error":
            facts["error_message"] = row["fault"]
        elif row["until_s"] < self._clock():
            # Its process has ended.
            facts |= {"status": "error", "error_message": _ENDED}
        elif row["state"] == "translating" and (rate := self._rate()):
            left_s = row["size"] / rate - (self._clock() - row["begun_s"])
            facts["seconds_remaining"] = max(1, math.ceil(left_s))
        return facts

    def result(self, id_: str, key: str) -> tuple[File, str]:
        """Returns a translated file, and the report about it."""
        row = self._row(id_, "state, name, content, fault, report", key)
        if row["state"] == "error":
            raise Failure("NOT_FOUND", f"the document was not translated: {row['fault']}")
        if row["state"] != "done":
            raise Failure("UNAVAILABLE", "the document is not translated yet")
        return File(row["name"], row["content"]), row["report"]

    async def remove(self, id_: str) -> None:
        """Removes a file; how long it took stays known."""
        self._change(id_, id=None, content=None)

    def close(self) -> None:
        """Closes the folder, or frees the memory."""
        self._rows.close()

    def _rate(self) -> float | None:
        # Bytes a second of what has been translated lately.
        rate: float | None
        lately = "SELECT SUM(size) / SUM(took_s) FROM document WHERE took_s > 0"
        [(rate,)] = self._rows.execute(lately)
        return rate

    def _row(self, id_: str, columns: str, key: str = "") -> sqlite3.Row:
        self._shrink()
        found = self._rows.execute(f"SELECT key, {columns} FROM document WHERE id = ?", (id_,))
        row: sqlite3.Row | None = found.fetchone()
        if row is None or not compare_digest(row["key"].encode(), key.encode()):
            raise Failure("NOT_FOUND", _GONE)
        return row

    def _added(self, id_: str, **values: Any) -> str:
        values = {"id": id_, "key": "", "until_s": self._clock()} | values
        names, places = ", ".join(values), ", ".join("?" * len(values))
        self._execute(f"INSERT INTO document ({names}) VALUES ({places})", [*values.values()])
        self._shrink()
        return id_

    def _change(self, id_: str, **values: Any) -> None:
        changes = ", ".join(f"{name} = ?" for name in values)
        self._execute(f"UPDATE document SET {changes} WHERE id = ?", [*values.values(), id_])

    def _execute(self, statement: str, values: list[Any]) -> None:
        try:
            self._rows.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise Failure("UNAVAILABLE", f"the file cannot be stored: {error}") from None

    def _shrink(self) -> None:
        # Rows are numbered in their order.
        self._rows.execute(
            "DELETE FROM document WHERE until_s < ? OR rowid IN (SELECT number FROM (SELECT rowid"
            " AS number, SUM(COALESCE(LENGTH(content), 0) + ?) OVER (ORDER BY rowid DESC) AS size"
            " FROM document) WHERE size > ?)",
            (self._clock() - self._kept_s, _BYTES_OF_ROW, self._max_bytes),
        )


def attachment(file: File, report: str = "") -> Response:
    """Writes a file as an answer, with the report about it."""
    # Shown in the gateway's own origin, a translated page could act for its readers.
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(file.name)}"}
    if report:
        headers["x-translation-report"] = report
    return Response(file.content, media_type="application/octet-stream", headers=headers)


def report_of(facts: dict[str, Any]) -> str:
    """Writes what became of the texts of a file, for a header: the last of its lists may lack."""
    # If a header is too long, proxies such as nginx refuse the whole answer.
    while len(report := json.dumps(facts)) > _LONGEST_REPORT and (
        texts := facts["texts_warned"] or facts["texts_left"]
    ):
        texts.pop()
    return report
