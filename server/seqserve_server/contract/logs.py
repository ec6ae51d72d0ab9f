"""Structured log lines: an event and its fields, as text for people or JSON for machines.

A line never holds the text of a caller. One that nobody takes is lost: a disk that is full, or a
reader that is gone or asleep, must not hold up calls.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import grpc

_STDOUT, _STDERR = 1, 2
# Where a pipe takes anything at all, it takes so much at once. POSIX demands 512.
_PIECE = getattr(select, "PIPE_BUF", 512)
_SEPARATORS = re.compile('[ "=]')

_log = logging.getLogger("seqserve")


class LogFormat(Enum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    """The least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(log_format: LogFormat, level: LogLevel) -> None:
    """Sends all log lines to standard error in the format chosen."""
    handler = _Handler()
    handler.setFormatter(_JsonFormatter() if log_format is LogFormat.JSON else _TextFormatter())
    handler.addFilter(_is_news)
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)


def event(name: str, fields: Mapping[str, object], level: int = logging.INFO) -> None:
    """Writes a line.

    Args:
        name: What happened, in few words.
        fields: What there is to know of it.
        level: Of :mod:`logging`.
    """
    _log.log(level, name, extra={"fields": dict(fields)})


def _is_news(record: logging.LogRecord) -> bool:
    """Passes over what gRPC says of an answer that it could not send: whose it was has gone."""
    error = record.exc_info[1] if record.exc_info else None
    return not (record.name.startswith("grpc.") and isinstance(error, grpc.aio.InternalError))


def say(line: str) -> None:
    """Writes a line to standard output, where somebody takes it."""
    with suppress(OSError):
        os.write(_STDOUT, f"{line}\n".encode())


class _Handler(logging.Handler):
    """Writes to standard error without ever waiting for whoever reads it."""

    def __init__(self) -> None:
        super().__init__()
        self._poll = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(_STDERR, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        except Exception:
            self.handleError(record)
            return
        with suppress(OSError):
            for begin in range(0, len(line), _PIECE):
                # Of a line that is cut off here, the rest is of no use.
                if self._poll is not None and not self._poll.poll(0):
                    return
                os.write(_STDERR, line[begin : begin + _PIECE])


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        words = [_when(record), record.levelname.lower(), record.getMessage()]
        words += [f"{key}={_plain(value)}" for key, value in fields.items()]
        text = " ".join(words)
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _when(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    if text and text.isprintable() and not _SEPARATORS.search(text):
        return text
    # Nothing that a terminal or a reader of lines could take for more than a value.
    return json.dumps(text, ensure_ascii=not text.isprintable())
