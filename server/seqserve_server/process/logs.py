"""Structured log lines: an event and its fields, as text for people or JSON for machines.

A line never contains text that a client sent. Libraries log through it too; gRPC's core, which
does not, is silent (``GRPC_VERBOSITY``). Writing never blocks: if the disk is full, or the reader
is gone or does not read, the line is lost.
"""

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

_STDOUT, _STDERR = 1, 2
# A pipe that is writable takes this many bytes without blocking; POSIX guarantees 512.
_CHUNK_BYTES = getattr(select, "PIPE_BUF", 512)
_SEPARATORS = re.compile('[ "=]')

_log = logging.getLogger("seqserve")


class LogFormat(Enum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(Enum):
    """Severity of the least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(log_format: LogFormat, level: LogLevel) -> None:
    """Sends all log lines of the process to standard error in this format."""
    handler = _Handler()
    handler.setFormatter(_JsonFormatter() if log_format is LogFormat.JSON else _TextFormatter())
    handler.addFilter(_is_relevant)
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)
    # No format shows them either.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def event(name: str, fields: Mapping[str, object], level: int = logging.INFO) -> None:
    """Writes a log line: what happened, in a few words, and facts about it."""
    if _log.isEnabledFor(level):
        # `log` would look for the line of code that calls it, which no format shows.
        extra = {"fields": fields}
        _log.handle(_log.makeRecord(_log.name, level, "", 0, name, (), None, extra=extra))


def _is_relevant(record: logging.LogRecord) -> bool:
    """Drops gRPC's errors that any client can cause: no taker, or metadata that are not UTF-8."""
    if not (record.name.startswith("grpc.") and record.exc_info):
        return True
    # Not at the top: engines, which lack it, start sooner.
    import grpc

    return not isinstance(record.exc_info[1], grpc.aio.InternalError | UnicodeDecodeError)


def announce(log_format: LogFormat, text: str, name: str, fields: Mapping[str, object]) -> None:
    """Writes to standard output: ``text`` for people, or the event as JSON for machines."""
    line = text
    if log_format is LogFormat.JSON:
        line = _JsonFormatter().format(
            logging.makeLogRecord(
                {"msg": name, "levelno": logging.INFO, "levelname": "INFO", "fields": fields}
            )
        )
    with suppress(OSError):
        os.write(_STDOUT, f"{line}\n".encode())


class _Handler(logging.Handler):
    """Writes to standard error without waiting for its reader."""

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
            for begin in range(0, len(line), _CHUNK_BYTES):
                # The rest of a line that was cut off is useless.
                if self._poll is not None and not self._poll.poll(0):
                    return
                os.write(_STDERR, line[begin : begin + _CHUNK_BYTES])


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        parts = [_when(record), record.levelname.lower(), _printable(record.getMessage())]
        parts += [f"{key}={_plain(value)}" for key, value in fields.items()]
        lines = [" ".join(parts)]
        if record.exc_info:
            # Indented, so that no line of an error's message looks like one of the log.
            trace = self.formatException(record.exc_info)
            lines += [f"  {_printable(line)}" for line in trace.splitlines()]
        return "\n".join(lines)


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
    if text and not _SEPARATORS.search(text):
        return _printable(text)
    # Quoted, so that terminals and parsers take it for one value.
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _printable(text: str) -> str:
    """Quotes a text that a terminal would not show as one line."""
    return text if text.isprintable() else json.dumps(text)
