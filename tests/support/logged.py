"""Lines that the server wrote to its log."""

from typing import Any

import pytest


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """The events with fields: each event's name and its fields."""
    return [
        (record.getMessage(), record.__dict__["fields"])
        for record in caplog.records
        if "fields" in record.__dict__
    ]


def fields_of(caplog: pytest.LogCaptureFixture, event: str = "") -> list[dict[str, Any]]:
    """The fields of all events, or of those with a name."""
    return [fields for name, fields in logged(caplog) if event in ("", name)]
