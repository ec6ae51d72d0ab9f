"""The security page names options and defaults; they must be right."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from seqserve.command.connection import ConnectionOptions
from seqserve.command.token import TokenOptions
from seqserve.options import flag_of
from seqserve.variables import variable_of
from seqserve_server.front.config import ServeOptions

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
OPTIONS = {
    field.name
    for options in (ServeOptions, ConnectionOptions, TokenOptions)
    for field in dataclasses.fields(options)
}


def test_every_option_that_the_page_names_exists() -> None:
    flags = set(re.findall(r"`(--[a-z-]+)", PAGE)) - {"--strict"}
    assert len(flags) > 10
    assert flags <= {flag_of(name) for name in OPTIONS}
    variables = set(re.findall(r"SEQSERVE_[A-Z_]+", PAGE))
    assert variables <= {variable_of(name) for name in OPTIONS}


def test_defaults_are_those_of_the_server() -> None:
    options = ServeOptions(workers=2)
    for words in (
        f"| {options.max_calls_per_connection:,} |",
        f"| {options.max_queue}, {options.slot_count()}; rows 16 for each core",
    ):
        assert words in PAGE
    assert options.max_connection_age_s == 3600 and "one hour" in PAGE
    assert options.max_message_bytes == 1 << 20 and "1 MiB" in PAGE
