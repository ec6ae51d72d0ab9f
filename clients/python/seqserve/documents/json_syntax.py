"""How JSON writes texts. Source: RFC 8259, section 7."""

from __future__ import annotations

import json
import re
from json import JSONDecoder

from seqserve.documents.syntax import Syntax

# No number is of interest, and an int of very many digits cannot be read.
DECODER = JSONDecoder(parse_int=float)
"""Reads JSON whose numbers mean nothing."""
_PAIR = r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"
_ESCAPE = re.compile(rf"{_PAIR}|\\u[\da-fA-F]{{4}}|\\.")


def _written(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _read(raw: str) -> str:
    text: str = json.loads(f'"{raw}"')
    return text


SYNTAX = Syntax(read=_read, write=_written, escape=_ESCAPE, keeps_space=True)
"""How JSON writes texts."""
